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

/// A prompt that is to be computed by an instant.
struct prefill_promise {
  std::uint64_t number = 0;  ///< Names it; unique among those that are kept.
  time_point by{};           ///< When its prefill must have ended; not `never`.
  duration work{0};          ///< Of it that is left, as predicted; at least 0.
};

/// How fast the stream works off what was predicted.
struct prefill_rate {
  duration busy{0};    ///< Until what goes before all others has ended; at least 0.
  double stretch = 1;  ///< Time that work takes over its prediction, to reckon with; at least 0.
  double best = 1;     ///< The same, to hope for; 0 to `stretch`.
};

/// The promises of a stream that computes prompts in pieces, earliest deadline first. A newcomer is
/// taken in only if, in that order, it and all those due after it are still in time: whoever was
/// taken in is never made late by one who comes later. Those due before it lose nothing by it, late
/// or not. As the order by deadlines is optimal for one stream, whoever is turned away could not
/// have been taken in by any order of service without somebody being late.
///
/// A stream that has promised nothing takes whoever is in time at its `best`: nobody else can be
/// late by it, and a slow spell that is over would otherwise never be seen to be, nothing being
/// computed.
///
/// It predicts, and does not measure: a promise is as good as `work` and `stretch`. Between two
/// asks the stream must not idle while work is left, and must take the pieces in this order.
/// Allocates to grow. O(promises) a call. Thread safety: none.
class prefill_promises {
 public:
  [[nodiscard]] bool empty() const noexcept { return kept_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return kept_.size(); }
  /// Of all that is left, as predicted.
  [[nodiscard]] duration work() const noexcept {
    duration sum{0};
    for (const prefill_promise& p : kept_) sum += p.work;
    return sum;
  }

  /// Whether one more can be promised.
  /// @param by When it would be due.  @param work Of it, as predicted; at least 0.
  [[nodiscard]] bool can_take(time_point by, duration work, time_point now,
                              const prefill_rate& rate) const noexcept;
  /// When one like a newcomer could be promised at the latest, if nobody else comes before; `never`
  /// if not even with the stream to itself. It need not be the first such instant.
  /// @param within From when it comes to when it is due.
  [[nodiscard]] time_point takes_from(duration within, duration work, time_point now,
                                      const prefill_rate& rate) const noexcept;

  /// Keeps one from now on, whether or not `can_take` holds. Its number must be new.
  void add(const prefill_promise& p) {
    const auto after = [](const prefill_promise& a, const prefill_promise& b) {
      return a.by < b.by;
    };
    kept_.insert(std::ranges::upper_bound(kept_, p, after), p);
  }
  /// What is left of one has changed; no effect if it is not kept.
  /// @param work At least 0.
  void set_work(std::uint64_t number, duration work) noexcept {
    const auto at = std::ranges::find(kept_, number, &prefill_promise::number);
    if (at != kept_.end()) at->work = work;
  }
  /// It has been computed, or never will be. @returns Whether it was kept.
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
  // By then either nothing is left, or the newcomer is due last and what is left is little enough.
  return std::min(idle, std::max({now, kept_.back().by - within, idle + own - within}));
}

}  // namespace cohort::kv
