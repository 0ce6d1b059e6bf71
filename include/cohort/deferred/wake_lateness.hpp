// SPDX-License-Identifier: Apache-2.0
/// @file
/// How late a driver's timers fire, measured by the component that set them: `wake_lateness`.
#pragma once

#include <cohort/core/quantile_sketch.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>

namespace cohort::deferred {

/// Compares the requested time of a driver's call with its actual time. A call for another event
/// before the timer is due counts as on time. Follows the last few hundred wakes. O(1). Allocates
/// only when made. Thread safety: none.
class wake_lateness {
 public:
  /// Notes that the driver called at `now`. @returns Whether `margin()` may have changed.
  bool woke(time_point now) noexcept { return asked_ <= now && fired(now); }
  /// Notes that the driver was asked to call next at `at`, later than the last call.
  void ask(time_point at) noexcept { asked_ = at; }

  /// 90th percentile of the lateness of wakes; 0 below two microseconds, and until 32 are known.
  [[nodiscard]] duration margin() const noexcept {
    if (late_.count() < 32) return duration{0};
    const double late = late_.quantile(0.9);
    return late < 2000 ? duration{0} : duration{static_cast<duration::rep>(late)};
  }
  /// In nanoseconds; smaller values count as a microsecond.
  [[nodiscard]] const quantile_sketch& distribution() const noexcept { return late_; }

 private:
  [[gnu::noinline]] bool fired(time_point now) noexcept {
    late_.add(static_cast<double>((now - asked_).count()));
    asked_ = never;
    return late_.count() % 32 == 0;
  }

  quantile_sketch late_{{.lowest = 1e3, .highest = 1e10}, 512};
  time_point asked_ = never;
};

}  // namespace cohort::deferred
