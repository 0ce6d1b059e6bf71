// SPDX-License-Identifier: Apache-2.0
/// @file
/// Predicts the sum of finish times of a row and of the requests waiting behind it, and chooses the
/// best sizes to split it into: `planner`.
#pragma once

#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

namespace cohort::batching {

/// Options of a planner.
struct plan_options {
  bool may_split = true;     ///< Rows may be cut at hand-overs.
  std::uint32_t bucket = 0;  ///< Size class that the times are taken from.
  duration hand_over{};      ///< Extra cost of a row and of each additional item; at least 0.
};

/// Plans on a device that runs one item at a time, depth first. While an item of a requests runs
/// for t, every unfinished request waits for t: the sum of finish times grows by t times their
/// number. With n requests of a row before stage s and m others behind,
///   C(s, n, m) = min over a of (n + m) t_s(a) + C(s + 1, a, m + n − a) + C(s, n − a, m),
/// where a is n or a smaller measured size, and C(S, ·, ·) = C(·, 0, ·) = 0; a smaller a adds the
/// time of a hand-over. Requests about to arrive count as if they waited behind, so a shorter total
/// time is worth more, as it must be under load. New rows are chosen in the same way, and each adds
/// the time of a hand-over, h:
///   W(w) = min over b of w (h + t_0(b)) + C(1, b, w − b) + W(w − b).
/// Memory: 12 bytes × stages × batch_max × (horizon + 1). Look-ups O(1), `split` O(parts),
/// `stretch` O(batch_max), `entry` O(measured sizes). Beyond `horizon` waiting requests, costs are
/// extrapolated linearly. Immutable. Thread safety: full.
class planner {
 public:
  /// @throws config_error If the bucket is not one of the profile's, or the plan would take more
  /// than `most_steps`: stages × batch_max × (horizon + 1) × measured sizes.
  explicit planner(const stage_profile& p, const plan_options& o = {})
      : profile_{&p}, options_{o}, horizon_{horizon_of(p)} {
    expects(o.bucket < p.buckets(), "planner: bucket must be one of the profile's");
    expects(o.hand_over >= duration{}, "planner: hand_over must be at least 0");
    const double steps = static_cast<double>(cells(p)) *
                         (o.may_split ? static_cast<double>(std::ranges::size(p.sizes())) : 1);
    expects(steps <= most_steps,
            "planner: stages, batch_max and measured sizes are too many to plan for: expected a "
            "product with the horizon of at most 1e9");
    cells_.resize(cells(p));
    for (std::uint32_t s = p.stages(); s-- > 1;) {
      for (std::uint32_t n = 1; n <= p.batch_max(); ++n) {
        for (std::uint32_t m = 0; m <= horizon_; ++m) at(s, n, m) = best(s, n, m);
      }
    }
    waiting_.resize(horizon_ + 1);
    for (std::uint32_t w = 1; w <= horizon_; ++w) waiting_[w] = best_entry(w);
  }

  static constexpr double most_steps = 1e9;
  /// The number of cells that a plan stores for a bucket, 16 bytes each.
  [[nodiscard]] static std::size_t cells(const stage_profile& p) noexcept {
    return std::size_t{p.stages() + 1} * (p.batch_max() + 1) * (horizon_of(p) + 1);
  }

  /// The size of a row to make of `w` ≥ 1 waiting requests.
  /// @param coming How many more will arrive before the queue is empty.
  [[nodiscard]] std::uint32_t entry(std::uint32_t w, std::uint32_t coming = 0) const noexcept {
    if (coming == 0) return waiting_[std::min(w, horizon_)].first;
    return cheapest(w, w + coming).first;
  }
  /// The sizes to split a row of n into after `stage`, with `w` requests waiting behind.
  /// @param sizes Room for n. @returns Their number; 1 if it stays whole.
  std::uint32_t split(std::uint32_t stage, std::uint32_t n, std::uint32_t w,
                      std::span<std::uint32_t> sizes) const noexcept {
    std::uint32_t parts = 0;
    while (n > 0) {
      const std::uint32_t a = at(stage + 1, n, std::min(w, horizon_)).first;
      sizes[parts++] = a;
      n -= a;
    }
    return parts;
  }

  /// Whether a row of n that has left `stage`, with `w` waiting behind, goes on in parts.
  [[nodiscard]] bool splits(std::uint32_t stage, std::uint32_t n, std::uint32_t w) const noexcept {
    return at(stage + 1, n, std::min(w, horizon_)).first < n;
  }

  /// A row that stands at a hand-over, seen by `stretch`.
  struct standing {
    std::uint32_t stage;  ///< The stage that its last `late` requests have left.
    std::uint32_t front;  ///< The stage that its others have left or are in; at least `stage`.
    std::uint32_t late;   ///< At least 1.
    std::uint32_t ahead;  ///< The others; 0 if the row stands whole, and then front is stage.
  };
  /// How many of `w` waiting requests, at most `may_join`, should join the row: they run the stages
  /// up to `stage` on their own and then continue with the late ones, while the part ahead is held.
  [[nodiscard]] std::uint32_t stretch(const standing& r, std::uint32_t w,
                                      std::uint32_t may_join) const noexcept {
    const std::uint32_t n = r.ahead + r.late;
    const auto sum = [&](std::uint32_t j) {
      const double alone = j == 0
                               ? 0
                               : to_ms(profile_->time_between(0, r.stage + 1, j, options_.bucket) +
                                       (r.stage + 2) * options_.hand_over);
      const double together =
          to_ms(profile_->time_between(r.stage + 1, r.front + 1, r.late + j, options_.bucket));
      return (n + w) * (alone + together) + cost(r.front + 1, n + j, w - j) + left(w - j);
    };
    std::uint32_t join = 0;
    double least = sum(0);
    for (std::uint32_t j = 1; j <= may_join; ++j) {
      if (const double s = sum(j); s < least * (1 - 1e-9)) {
        least = s;
        join = j;
      }
    }
    return join;
  }

  /// C(stage, n, m) in milliseconds.
  [[nodiscard]] double cost(std::uint32_t stage, std::uint32_t n, std::uint32_t m) const noexcept {
    if (stage >= profile_->stages() || n == 0) return 0;
    if (m <= horizon_) return at(stage, n, m).cost;
    const double last = at(stage, n, horizon_).cost;
    return last + (m - horizon_) * (last - at(stage, n, horizon_ - 1).cost);
  }
  /// W(w) in milliseconds.
  [[nodiscard]] double left(std::uint32_t w) const noexcept {
    if (w <= horizon_) return waiting_[w].cost;
    // Requests beyond the horizon go first, at the pace of the horizon's rows.
    const double pace = waiting_[horizon_].time / horizon_;
    const double beyond = w - horizon_;
    return waiting_[horizon_].cost + beyond * waiting_[horizon_].time + pace * beyond * beyond / 2;
  }

 private:
  static std::uint32_t horizon_of(const stage_profile& p) noexcept {
    return std::clamp(2 * p.batch_max(), 64U, 256U);
  }
  struct cell {
    double cost = 0;
    std::uint32_t first = 0;
  };
  struct entry_cell {
    double cost = 0;
    double time = 0;  // Until the last of them has finished.
    std::uint32_t first = 0;
  };

  [[nodiscard]] cell& at(std::uint32_t s, std::uint32_t n, std::uint32_t m) noexcept {
    return cells_[(std::size_t{s} * (profile_->batch_max() + 1) + n) * (horizon_ + 1) + m];
  }
  [[nodiscard]] const cell& at(std::uint32_t s, std::uint32_t n, std::uint32_t m) const noexcept {
    return const_cast<planner*>(this)->at(s, n, m);
  }
  [[nodiscard]] double ms(std::uint32_t stage, std::uint32_t n) const noexcept {
    return to_ms(profile_->time(stage, n, options_.bucket));
  }

  [[nodiscard]] cell best(std::uint32_t s, std::uint32_t n, std::uint32_t m) const noexcept {
    const double unfinished = n + m;
    cell c{unfinished * ms(s, n) + cost(s + 1, n, m), n};
    if (!options_.may_split) return c;
    for (const std::uint32_t a : profile_->sizes()) {
      if (a >= n) break;
      const double sum = unfinished * (ms(s, a) + to_ms(options_.hand_over)) +
                         cost(s + 1, a, m + n - a) + cost(s, n - a, m);
      if (sum < c.cost * (1 - 1e-9)) c = {sum, a};
    }
    return c;
  }

  /// The best row for w waiting requests if `all` requests, including these, are to be served.
  [[nodiscard]] cell cheapest(std::uint32_t w, std::uint32_t all) const noexcept {
    cell c{};
    const auto consider = [&](std::uint32_t b) {
      const double sum = all * row_start(b) + cost(1, b, all - b) + left(all - b);
      if (c.first == 0 || sum < c.cost * (1 - 1e-9)) c = {sum, b};
    };
    consider(std::min(w, profile_->batch_max()));
    for (const std::uint32_t size : std::views::reverse(profile_->sizes())) {
      if (size < w) consider(size);
    }
    return c;
  }
  [[nodiscard]] entry_cell best_entry(std::uint32_t w) const noexcept {
    const cell c = cheapest(w, w);
    const std::uint32_t behind = w - c.first;
    return {c.cost, row_time(c.first, behind) + waiting_[behind].time, c.first};
  }

  /// Device time of a row of b with m behind, as planned.
  [[nodiscard]] double row_time(std::uint32_t b, std::uint32_t m) const noexcept {
    return row_start(b) + time_from(1, b, m);
  }
  [[nodiscard]] double row_start(std::uint32_t b) const noexcept {
    return to_ms(options_.hand_over) + ms(0, b);
  }
  [[nodiscard]] double time_from(std::uint32_t s, std::uint32_t n, std::uint32_t m) const noexcept {
    if (s >= profile_->stages()) return 0;
    double sum = 0;
    while (n > 0) {
      const std::uint32_t a = at(s, n, std::min(m, horizon_)).first;
      sum += ms(s, a) + time_from(s + 1, a, std::min(m + n - a, horizon_));
      n -= a;
    }
    return sum;
  }

  const stage_profile* profile_;
  plan_options options_;
  std::uint32_t horizon_;
  std::vector<cell> cells_;
  std::vector<entry_cell> waiting_;
};

}  // namespace cohort::batching
