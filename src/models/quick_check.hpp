// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a time that was measured once still holds, told from a few runs on a machine that may be
/// doing other things.
#pragma once

#include <cstdint>

namespace cohort::models {

/// What a check found.
enum class drift : std::uint8_t {
  none,    ///< A run took about as long.
  faster,  ///< A run took far less.
  slower,  ///< No run came near it.
};

/// How to check.
struct check_options {
  double factor = 2;     ///< Times apart by more are not the same; above 1.
  int runs = 10;         ///< That are too long before it is given up; at least 1.
  double runs_ms = 100;  ///< How long they must have taken together by then; at least 0.
};

/// A check, and what it has seen.
struct checked_time {
  drift how = drift::none;
  double least_ms = 0;  ///< Of its runs.
  int runs = 0;
};

/// Compares runs with the least time that was measured once. Other work on the machine only adds to
/// a run. So one run that is short enough shows that nothing has slowed down, and ends the check;
/// that all are too long may be chance in some, for other work comes in bouts, but hardly in many
/// over a while. One run that is far too short shows that the kept time is wrong: no other work
/// makes a run short.
/// @param kept_ms Above 0. @param run Runs once and gives its time in ms.
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
