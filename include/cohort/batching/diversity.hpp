// SPDX-License-Identifier: Apache-2.0
/// @file
/// The three policies of DVABatch, as printed and in a planned form, and their combination.
#pragma once

#include <cohort/batching/planner.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/batching/queue_value.hpp>
#include <cohort/batching/sized_rows.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cohort::batching {

/// Input diversity: which requests share a row, and the size they are padded to.
enum class input_rule : std::uint8_t {
  none,      ///< All waiting requests, padded to the longest.
  clusters,  ///< As printed: each row holds the requests of one bucket.
  filled,    ///< The set with the least predicted cost: see `sized_rows`.
};
/// Operator diversity: whether a row is split at a hand-over.
enum class split_rule : std::uint8_t {
  none,
  halving,  ///< As printed: in halves, again and again, while two halves are not slower.
  planned,  ///< Into the measured sizes with the least predicted sum of finish times.
};
/// Load diversity: whether requests join a running row.
enum class stretch_rule : std::uint8_t {
  none,
  always,   ///< As printed: on arrival, whenever it is allowed.
  planned,  ///< At hand-overs, as many as minimise the predicted sum of finish times.
};

struct diversity_options {
  input_rule input = input_rule::none;
  split_rule split = split_rule::planned;
  stretch_rule stretch = stretch_rule::planned;
  /// For `halving`: how much slower two halves may be, as a fraction; 0 to below 1. Measured
  /// profiles include a cost per launch, so exact equality never occurs.
  double split_tolerance = 0.01;
  /// For the planned forms: the extra cost of a row and of each additional item, since two threads
  /// wake; at least 0.
  duration hand_over{};
  /// Maximum rows at one time; 0 means as many as there are buffers. With 1, and no input, operator
  /// or load diversity, the policy is zero-batch.
  std::uint32_t most_rows = 0;
  /// With at most one row at a time: how long the oldest request waits for others, unless the
  /// largest batch is full before. At least 0.
  duration delay{};
};

/// Policies I, II and III together, input diversity first. Pure; copies share their plans.
/// Source: DVABatch, section 7; the planned forms are this project's (docs/batching/diversity.md).
class diversity {
 public:
  /// @param profile Must outlive the policy.
  /// @throws config_error If the tolerance is not in [0, 1), the hand-over or the delay below 0, or
  /// the profile too large to plan for.
  explicit diversity(const stage_profile& profile, const diversity_options& o = {})
      : profile_{&profile}, options_{o} {
    expects(o.split_tolerance >= 0 && o.split_tolerance < 1,
            "diversity: split_tolerance must be at least 0 and below 1");
    expects(o.delay >= duration{}, "diversity: delay must be at least 0");
    const bool plans = o.split == split_rule::planned || o.stretch == stretch_rule::planned;
    if (plans) {
      expects(
          planner::cells(profile) <= (std::size_t{1} << 27U) / profile.buckets(),
          "diversity: stages, buckets and batch_max are too many to plan for: expected a plan of "
          "at most 2 GiB");
      auto all = std::make_shared<std::vector<planner>>();
      for (std::uint32_t k = 0; k < profile.buckets(); ++k) {
        all->emplace_back(profile, plan_options{.may_split = o.split == split_rule::planned,
                                                .bucket = k,
                                                .hand_over = o.hand_over});
      }
      plans_ = std::move(all);
      auto times = std::make_shared<std::vector<double>>();
      for (std::uint32_t k = 0; k < profile.buckets(); ++k) {
        times->push_back(0);
        for (std::uint32_t n = 1; n <= profile.batch_max(); ++n) {
          times->push_back(to_ms(profile.total(n, k) + o.hand_over));
        }
      }
      times_ = std::move(times);
      changes_ = std::make_shared<std::vector<std::atomic<std::uint8_t>>>(
          std::size_t{profile.buckets()} * profile.stages() * (profile.batch_max() + 1));
    }
    if (o.input == input_rule::filled) sized_ = std::make_shared<sized_rows>(profile);
    if (o.split == split_rule::halving) {
      for (std::uint32_t s = 0; s + 1 < profile.stages() && !foreseen_; ++s) {
        foreseen_ = halves(s, profile.batch_max(), 0);
      }
    }
  }

  /// A policy with the same tables and other rules, a subset of the present ones.
  [[nodiscard]] diversity with(const diversity_options& o) const {
    diversity other = *this;
    other.options_ = o;
    return other;
  }
  [[nodiscard]] const diversity_options& options() const noexcept { return options_; }

  [[nodiscard]] entry_decision entry(const entry_view& v) const noexcept {
    if (options_.most_rows > 0 && v.rows >= options_.most_rows) return {};
    if (options_.delay > duration{} && v.eligible < profile_->batch_max()) {
      const time_point due = v.waiting[0].arrival + options_.delay;
      if (v.now < due) return {.again = due};
    }
    if (options_.input != input_rule::none) return sized_entry(v);
    entry_decision d{.count = std::min(v.eligible, profile_->batch_max())};
    for (std::uint32_t i = 0; i < d.count; ++i) d.bucket = std::max(d.bucket, v.waiting[i].bucket);
    if (is_planned() && !v.window) {
      const std::uint32_t more = coming(v.eligible, v.rate, 0, d.count, d.bucket);
      d.count = std::min(d.count, (*plans_)[d.bucket].entry(v.eligible, more));
    }
    return d;
  }

  [[nodiscard]] bool stretches_on_arrival(const batch_row&, std::uint32_t) const noexcept {
    return options_.stretch == stretch_rule::always;
  }
  [[nodiscard]] std::uint32_t stretch(const hand_over_view& v) const noexcept {
    if (options_.stretch == stretch_rule::always) return v.may_join;
    if (options_.stretch != stretch_rule::planned) return 0;
    const std::uint32_t front = v.row.entered();
    // Seen from the stage left, the others are ahead if they were issued to the next.
    const std::uint32_t ahead = v.row.issued[v.stage + 1];
    return (*plans_)[v.row.bucket].stretch({.stage = v.stage,
                                            .front = std::max(front, v.stage),
                                            .late = v.row.size - ahead,
                                            .ahead = ahead},
                                           v.waiting.size(), v.may_join);
  }

  [[nodiscard]] std::uint32_t split(const hand_over_view& v,
                                    std::span<std::uint32_t> sizes) const noexcept {
    if (options_.split == split_rule::planned) {
      const std::uint32_t behind = v.waiting.size() + coming(v.waiting.size(), v.rate, v.stage + 1,
                                                             v.row.size, v.row.bucket);
      return (*plans_)[v.row.bucket].split(v.stage, v.row.size, behind, sizes);
    }
    if (options_.split != split_rule::halving) return 0;
    std::uint32_t parts = 0;
    halve(v.stage, v.row.size, v.row.bucket, sizes, parts);
    return parts;
  }
  /// Judged at the largest batch: a small row that splits nowhere may grow into one that does.
  [[nodiscard]] bool foresees_split(std::uint32_t) const noexcept { return foreseen_; }
  [[nodiscard]] verdict judge(const staged_request&, std::uint32_t) const noexcept {
    return verdict::go_on;
  }
  using run_to_of = diversity;
  /// The last stage that a row reaches unchanged with 1, 2, 4, ... waiting requests, up to the
  /// largest batch; later stages follow while a hand-over would cost more than a twentieth of the
  /// time.
  [[nodiscard]] std::uint32_t run_to(const batch_row& r, std::uint32_t stage) const noexcept {
    duration takes = profile_->time(stage, r.size, r.bucket);
    while (stage + 1 < profile_->stages() &&
           (takes < 20 * options_.hand_over || !may_change(r, stage))) {
      takes += profile_->time(++stage, r.size, r.bucket);
    }
    return stage;
  }

 private:
  static constexpr std::uint8_t known = 1;
  static constexpr std::uint8_t splits = 2;
  static constexpr std::uint8_t stretches = 4;

  [[nodiscard]] bool may_change(const batch_row& r, std::uint32_t stage) const noexcept {
    if (options_.stretch == stretch_rule::always && !r.no_stretch) return true;
    if (options_.split == split_rule::halving && halves(stage, r.size, r.bucket)) return true;
    if (!is_planned()) return false;
    // The result is cached: every thread would compute the same.
    std::atomic<std::uint8_t>& kept =
        (*changes_)[(std::size_t{r.bucket} * profile_->stages() + stage) *
                        (profile_->batch_max() + 1) +
                    r.size];
    std::uint8_t found = kept.load(std::memory_order_relaxed);
    if (found == 0) {
      found = find_changes((*plans_)[r.bucket], stage, r.size);
      kept.store(found, std::memory_order_relaxed);
    }
    return (found & splits) != 0 || ((found & stretches) != 0 && !r.no_stretch);
  }
  [[nodiscard]] std::uint8_t find_changes(const planner& plan, std::uint32_t stage,
                                          std::uint32_t n) const noexcept {
    unsigned found = known;
    // For a split, requests about to arrive count as waiting.
    for (std::uint32_t w = 0; w <= 10 * profile_->batch_max(); w = std::max(1U, 2 * w)) {
      if (options_.split == split_rule::planned && plan.splits(stage, n, w)) found |= splits;
      if (options_.stretch != stretch_rule::planned || w > profile_->batch_max()) continue;
      const std::uint32_t may_join = std::min(w, profile_->batch_max() - n);
      const planner::standing whole{.stage = stage, .front = stage, .late = n, .ahead = 0};
      if (plan.stretch(whole, w, may_join) > 0) found |= stretches;
    }
    return static_cast<std::uint8_t>(found);
  }

  [[nodiscard]] bool is_planned() const noexcept {
    return options_.split == split_rule::planned || options_.stretch == stretch_rule::planned;
  }
  /// How many requests, besides the w waiting ones, are delayed by a little more device time: those
  /// that arrive before the delay has no more effect. More wait by then, since a row of n first
  /// runs from `stage` to its end.
  [[nodiscard]] std::uint32_t coming(std::uint32_t w, double rate, std::uint32_t stage,
                                     std::uint32_t n, std::uint32_t bucket) const noexcept {
    const std::span<const double> times = std::span{*times_}.subspan(
        std::size_t{bucket} * (profile_->batch_max() + 1), profile_->batch_max() + 1);
    const double meanwhile =
        rate * to_ms(profile_->time_between(stage, profile_->stages(), n, bucket));
    const double price = queue_value{times, rate}.price(w + meanwhile);
    return static_cast<std::uint32_t>(std::clamp(price - w, 0.0, 10.0 * profile_->batch_max()));
  }
  /// T_b >= 2 (1 − eps) T_{b/2}, where T_x is the time of x requests through all later stages.
  [[nodiscard]] bool halves(std::uint32_t stage, std::uint32_t b,
                            std::uint32_t bucket) const noexcept {
    if (b < 2) return false;
    const auto remaining = [&](std::uint32_t n) {
      return static_cast<double>(
          profile_->time_between(stage + 1, profile_->stages(), n, bucket).count());
    };
    return remaining(b) >= 2 * (1 - options_.split_tolerance) * remaining((b + 1) / 2);
  }
  void halve(std::uint32_t stage, std::uint32_t b, std::uint32_t bucket,
             std::span<std::uint32_t> sizes, std::uint32_t& parts) const noexcept {
    if (!halves(stage, b, bucket)) {
      sizes[parts++] = b;
      return;
    }
    halve(stage, b - b / 2, bucket, sizes, parts);
    halve(stage, b / 2, bucket, sizes, parts);
  }

  [[nodiscard]] entry_decision sized_entry(const entry_view& v) const noexcept {
    if (v.requests_in_flight >= profile_->batch_max() || v.running_share >= 1 - 1e-9) return {};
    const std::uint32_t room = profile_->batch_max() - v.requests_in_flight;
    const std::uint32_t oldest = v.waiting[0].bucket;
    if (options_.input == input_rule::clusters) {
      return {.count = room, .bucket = oldest, .fill = fill_order::same_bucket};
    }
    return sized_->choose(v, room);
  }

  const stage_profile* profile_;
  diversity_options options_;
  std::shared_ptr<const std::vector<planner>> plans_;
  std::shared_ptr<const std::vector<double>> times_;  // By bucket: times of 0, 1, ... requests.
  std::shared_ptr<const sized_rows> sized_;
  std::shared_ptr<std::vector<std::atomic<std::uint8_t>>> changes_;  // By bucket, stage and size.
  bool foreseen_ = false;
};
static_assert(staging_policy<diversity>);

}  // namespace cohort::batching
