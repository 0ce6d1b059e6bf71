// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks with a few runs whether a kept time still holds, on a machine that may be doing other
/// work.
#pragma once

#include <cstdint>

namespace cohort::models {

/// The result of a check.
enum class drift : std::uint8_t {
  none,    ///< A run took about as long.
  faster,  ///< A run took far less.
  slower,  ///< No run came near it.
};

/// Options of a check.
struct check_options {
  double factor = 2;     ///< Larger ratios count as different; above 1.
  int runs = 10;         ///< Number of slow runs before giving up; at least 1.
  double runs_ms = 100;  ///< And their minimum total time; at least 0.
};

/// A check with its measurements.
struct checked_time {
  drift how = drift::none;
  double least_ms = 0;  ///< Shortest of its runs.
  int runs = 0;
};

/// Compares runs with a kept shortest time. Other work on the machine only lengthens runs. So one
/// short enough run shows that nothing has slowed down, and ends the check. Some long runs may be
/// chance, as other work comes in bursts, but hardly many over a while. One far too short run shows
/// that the kept time is wrong, as other work makes no run shorter.
/// @param kept_ms Above 0. @param run Runs once and returns its time in ms.
template <class Run>
[[nodiscard]] checked_time quick_check(double kept_ms, Run&& run, const check_options& o = {}) {
  checked_time c{.how = drift::slower};
  double taken_ms = 0;
  while (c.how == drift::slower && (c.runs < o.runs || taken_ms < o.runs_ms)) {
    const double ms = run();
    taken_ms += ms;
    if (c.runs++ == 0 || ms < c.least_ms) c.least_ms = ms;
    if (ms < kept_ms / o.factor) {
      c.how = drift::faster;
    } else if (ms <= kept_ms * o.factor) {
      c.how = drift::none;
    }
  }
  return c;
}

}  // namespace cohort::models
