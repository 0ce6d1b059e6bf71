// SPDX-License-Identifier: Apache-2.0
/// @file
/// Instants and durations: 64-bit nanoseconds on a timeline that no component can read.
#pragma once

#include <cohort/core/version.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cohort {

/// The timeline of all instants. It has no `now()`: components are told the time by their driver.
struct timeline {
  using rep = std::int64_t;
  using period = std::nano;
  using duration = std::chrono::duration<rep, period>;
  using time_point = std::chrono::time_point<timeline>;
  static constexpr bool is_steady = true;
};

using duration = timeline::duration;
using time_point = timeline::time_point;

/// Later than every instant that is ever reached: a timer that is not armed. Compare, never add.
inline constexpr time_point never = time_point::max();

/// Earlier than every instant that is ever reached, with room to subtract from.
inline constexpr time_point distant_past{duration{std::numeric_limits<std::int64_t>::min() / 4}};

/// Longer than anything that is ever waited for, with room to add to.
inline constexpr duration unbounded{std::numeric_limits<std::int64_t>::max() / 4};

/// Milliseconds to a duration, rounded to the nearest nanosecond. Saturates at `unbounded`.
[[nodiscard]] inline duration from_ms(double ms) noexcept {
  const double ns = std::round(ms * 1e6);
  if (ns >= static_cast<double>(unbounded.count())) return unbounded;
  if (ns <= -static_cast<double>(unbounded.count())) return -unbounded;
  return duration{static_cast<std::int64_t>(ns)};
}

/// Seconds to a duration, rounded to the nearest nanosecond. Saturates at `unbounded`.
[[nodiscard]] inline duration from_seconds(double s) noexcept { return from_ms(s * 1e3); }

/// The duration times `by`, rounded to the nearest nanosecond.
[[nodiscard]] inline duration stretched(duration d, double by) noexcept {
  return by == 1 ? d : duration{std::llround(static_cast<double>(d.count()) * by)};
}

[[nodiscard]] constexpr double to_ms(duration d) noexcept {
  return static_cast<double>(d.count()) / 1e6;
}
[[nodiscard]] constexpr double to_seconds(duration d) noexcept {
  return static_cast<double>(d.count()) / 1e9;
}
[[nodiscard]] constexpr double to_ms(time_point t) noexcept { return to_ms(t.time_since_epoch()); }
[[nodiscard]] constexpr double to_seconds(time_point t) noexcept {
  return to_seconds(t.time_since_epoch());
}

}  // namespace cohort
