// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses by cost which waiting requests share a row, and the size it is padded to.
#pragma once

#include <cohort/batching/policy.hpp>
#include <cohort/batching/queue_value.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::batching {

/// Chooses the best row under the assumption that later requests are served in order, all waiting
/// ones in one row. A row of n requests padded to bucket k takes T(n, k), and uses device time
///   c(n, k) = max(sum of t_s share_s, T / lanes),
/// less than T if other rows can run beside it. With r requests left behind, the cost is n T plus
/// the cost of r requests that wait for c (see `queue_value`). There, n requests take the mean of
/// c(n, k) over the distribution of the longest of n arrivals. So the gain for a row's own members
/// is weighed against the cost for all later requests that it affects. Where one row of all that
/// wait cannot keep up with the load, n requests take the mean of c(n, k) over the arrivals' own
/// buckets: rows of one bucket each might keep up. A request then counts in the queue with its own
/// bucket's time relative to that mean; otherwise it would seem better to leave longer requests,
/// until only those wait.
///
/// Every candidate row contains the oldest request: either its bucket, filled with shorter
/// requests, longest first; or the oldest requests, padded to the longest of them. No values are
/// compared for equality, so a small difference has a small effect.
/// Memory: 16 bytes × buckets × batch_max. A choice: O(buckets × (waiting + batch_max) + rows
/// tried). Immutable. Thread safety: full. Source: this project's (docs/batching/diversity.md).
class sized_rows {
 public:
  static constexpr std::uint32_t most_batch = 1024;

  /// @throws config_error If batches are larger than `most_batch`.
  explicit sized_rows(const stage_profile& p)
      : profile_{&p}, cells_(std::size_t{p.buckets()} * p.batch_max()) {
    expects(p.batch_max() <= most_batch, "sized_rows: batch_max must be at most 1024");
    for (std::uint32_t k = 0; k < p.buckets(); ++k) {
      for (std::uint32_t n = 1; n <= p.batch_max(); ++n) {
        cell& c = cells_[index(n, k)];
        for (std::uint32_t s = 0; s < p.stages(); ++s) {
          c.time += to_ms(p.time(s, n, k));
          c.work += to_ms(p.time(s, n, k)) * p.share(s, n, k);
        }
      }
    }
  }

  /// @param room Maximum requests in the row; at least 1.
  [[nodiscard]] entry_decision choose(const entry_view& v, std::uint32_t room) const noexcept {
    const std::uint32_t oldest = v.waiting[0].bucket;
    const std::uint32_t most = std::min(room, v.eligible);
    std::array<double, most_batch + 1> table;  // NOLINT(*-member-init): filled below.
    const std::span<double> times = std::span{table}.first(profile_->batch_max() + 1);
    set_times(times, v, true);
    // Measured rates have an error of a few per cent.
    const bool is_apart = v.rate * times.back() > 1.05 * profile_->batch_max();
    if (is_apart) set_times(times, v, false);
    const queue_value queue{times, v.rate};
    // The weight of a request of a bucket, in mean requests.
    const auto weight = [&](std::uint32_t bucket) {
      return is_apart ? cells_[index(profile_->batch_max(), bucket)].cost(v.lanes) / times.back()
                      : 1.0;
    };
    double waiting = v.eligible;
    if (is_apart) {
      waiting = 0;
      for (std::uint32_t i = 0; i < v.eligible; ++i) waiting += weight(v.waiting[i].bucket);
    }
    choice best{.cost = 0, .row = {}};
    const auto consider = [&](std::uint32_t n, double taken, std::uint32_t bucket,
                              fill_order fill) {
      const cell& c = cells_[index(n, bucket)];
      const double share = c.time > 0 ? c.work / c.time : 0;
      const double own = c.time * std::max(1.0, v.running_share + share);
      const double cost = n * own + queue.wait(waiting - taken, c.cost(v.lanes));
      if (best.row.count == 0 || cost < best.cost) {
        best = {cost, {.count = n, .bucket = bucket, .fill = fill}};
      }
    };
    // Requests as long as the oldest, then shorter ones.
    std::uint32_t n = 0;
    double taken = 0;
    auto measured = profile_->sizes().begin();
    for (std::uint32_t bucket = oldest + 1; bucket-- > 0 && n < most;) {
      for (std::uint32_t i = 0; i < v.eligible && n < most; ++i) {
        if (v.waiting[i].bucket != bucket) continue;
        taken += weight(bucket);
        if (*measured == ++n) {
          consider(n, taken, oldest, fill_order::longest_first);
          ++measured;
        }
      }
    }
    if (!std::ranges::binary_search(profile_->sizes(), n)) {
      consider(n, taken, oldest, fill_order::longest_first);
    }
    // By age, from the first longer request on.
    std::uint32_t longest = oldest;
    measured = profile_->sizes().begin();
    taken = 0;
    for (n = 1; n <= most; ++n) {
      const std::uint32_t bucket = v.waiting[n - 1].bucket;
      taken += weight(bucket);
      longest = std::max(longest, bucket);
      while (*measured < n) ++measured;
      if (longest > oldest && (*measured == n || n == most)) {
        consider(n, taken, longest, fill_order::oldest);
      }
    }
    return best.row;
  }

 private:
  struct cell {
    double time = 0;  // Sum over all stages, in milliseconds.
    double work = 0;  // The same, times the device share.
    [[nodiscard]] double cost(std::uint32_t lanes) const noexcept {
      return std::max(work, time / lanes);
    }
  };
  struct choice {
    double cost;
    entry_decision row;
  };

  /// Fills in the time of n requests: padded to the longest of them, or averaged over their own
  /// buckets.
  void set_times(std::span<double> times, const entry_view& v, bool to_longest) const noexcept {
    std::ranges::fill(times, 0.0);
    double all = 0;
    for (const std::uint32_t n : v.mix) all += n;
    double up_to = 0;
    for (std::uint32_t k = 0; k < v.mix.size(); ++k) {
      if (v.mix[k] == 0) continue;
      const double below = up_to / all;
      up_to += v.mix[k];
      // Probability that the longest of n is in this bucket: none is above it, and not all are
      // below.
      double none_above = up_to / all;
      double all_below = below;
      for (std::uint32_t n = 1; n < times.size(); ++n) {
        times[n] += (none_above - all_below) * cells_[index(n, k)].cost(v.lanes);
        if (!to_longest) continue;
        none_above *= up_to / all;
        all_below *= below;
      }
    }
  }

  [[nodiscard]] std::size_t index(std::uint32_t n, std::uint32_t bucket) const noexcept {
    return std::size_t{bucket} * profile_->batch_max() + n - 1;
  }

  const stage_profile* profile_;
  std::vector<cell> cells_;
};

}  // namespace cohort::batching
