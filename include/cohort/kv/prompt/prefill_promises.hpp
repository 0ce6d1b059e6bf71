// SPDX-License-Identifier: Apache-2.0
/// @file
/// Promises of first tokens that one prefill stream has made, and whether it can make another.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::kv {

/// A prompt whose prefill must end by an instant.
struct prefill_promise {
  std::uint64_t number = 0;  ///< Names it; unique among those that are kept.
  time_point by{};           ///< When its prefill must have ended; not `never`.
  duration work{0};          ///< Predicted work that is left of it; at least 0.
};

/// How fast the stream works, relative to the prediction.
struct prefill_rate {
  duration busy{0};    ///< Time until the work ahead of all others has ended; at least 0.
  double stretch = 1;  ///< Time over prediction to plan with; at least 0.
  double best = 1;     ///< The same ratio, optimistically; 0 to `stretch`.
};

/// The promises of a stream that computes prompts in pieces, earliest deadline first. A new prompt
/// is accepted only if, in that order, it and all those due after it are still in time. So an
/// accepted prompt is never made late by a later arrival, and those due before the new one lose
/// nothing, whether they are late or not. The order by deadlines is optimal for one stream: a
/// prompt that is turned away could not have been accepted under any order of service without
/// making some prompt late.
///
/// A stream without promises accepts any prompt that is in time at its `best` rate. This makes no
/// other prompt late. It is also the only way to notice that a slow spell is over, since otherwise
/// nothing would be computed.
///
/// It predicts, and does not measure: a promise is as good as `work` and `stretch`. Between two
/// calls the stream must not idle while work is left, and must take the pieces in this order.
/// Allocates to grow. O(promises) a call. Thread safety: none.
class prefill_promises {
 public:
  [[nodiscard]] bool empty() const noexcept { return kept_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return kept_.size(); }
  /// Predicted work that is left, summed over all promises.
  [[nodiscard]] duration work() const noexcept {
    duration sum{0};
    for (const prefill_promise& p : kept_) sum += p.work;
    return sum;
  }

  /// Whether one more can be promised.
  /// @param by When it would be due.  @param work Its predicted work; at least 0.
  [[nodiscard]] bool can_take(time_point by, duration work, time_point now,
                              const prefill_rate& rate) const noexcept;
  /// When a prompt like this one could be promised at the latest, if no other arrives before;
  /// `never` if not even with the stream to itself. An earlier instant may exist.
  /// @param within Time from its arrival until it is due.
  [[nodiscard]] time_point takes_from(duration within, duration work, time_point now,
                                      const prefill_rate& rate) const noexcept;

  /// Keeps a promise from now on, whether or not `can_take` holds. Its number must be new.
  void add(const prefill_promise& p) {
    const auto after = [](const prefill_promise& a, const prefill_promise& b) {
      return a.by < b.by;
    };
    kept_.insert(std::ranges::upper_bound(kept_, p, after), p);
  }
  /// Updates the work that is left of a promise; no effect if it is not kept.
  /// @param work At least 0.
  void set_work(std::uint64_t number, duration work) noexcept {
    const auto at = std::ranges::find(kept_, number, &prefill_promise::number);
    if (at != kept_.end()) at->work = work;
  }
  /// Removes a promise that was computed, or never will be. @returns Whether it was kept.
  bool erase(std::uint64_t number) noexcept {
    return std::erase_if(kept_, [&](const prefill_promise& p) { return p.number == number; }) > 0;
  }

 private:
  [[nodiscard]] static duration stretched(duration work, double stretch) noexcept {
    return duration{static_cast<std::int64_t>(static_cast<double>(work.count()) * stretch)};
  }

  std::vector<prefill_promise> kept_;  // By deadline; of equal ones the earlier first.
};

inline bool prefill_promises::can_take(time_point by, duration work, time_point now,
                                       const prefill_rate& rate) const noexcept {
  COHORT_ASSERT(work >= duration{0} && rate.best >= 0 && rate.best <= rate.stretch);
  const time_point start = now + rate.busy;
  if (kept_.empty()) return stretched(work, rate.best) <= by - start;
  duration before{0};
  auto at = kept_.begin();
  for (; at != kept_.end() && at->by <= by; ++at) before += at->work;
  before += work;
  // Not start + ... <= by: an instant far away has no room to add to.
  if (stretched(before, rate.stretch) > by - start) return false;
  for (; at != kept_.end(); ++at) {
    before += at->work;
    if (stretched(before, rate.stretch) > at->by - start) return false;
  }
  return true;
}

inline time_point prefill_promises::takes_from(duration within, duration work, time_point now,
                                               const prefill_rate& rate) const noexcept {
  if (stretched(work, rate.best) > within) return never;
  const time_point idle = now + rate.busy + stretched(this->work(), rate.stretch);
  const duration own = stretched(work, rate.stretch);
  if (kept_.empty() || own > within) return idle;
  // By then either nothing is left, or the newcomer is due last and little enough work is left.
  return std::min(idle, std::max({now, kept_.back().by - within, idle + own - within}));
}

}  // namespace cohort::kv
