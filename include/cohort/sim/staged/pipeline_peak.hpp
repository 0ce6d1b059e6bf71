// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the highest rate at which a staged pipeline meets its SLO, and the best window of
/// delay-batch.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace cohort::sim {

/// The highest rate for which `holds(rate)` is true, by doubling from `start` and bisection.
/// @param precision Width of the last bracket relative to the rate, above 0.
/// @param start Above 0.  @param most Rates beyond are not tried.
/// @returns 0 if it does not hold at start / 2^20.
/// @throws config_error If an argument is outside its range.
template <class Holds>
double find_peak(Holds&& holds, double precision, double start, double most = 1e7) {
  expects(precision > 0, "find_peak: precision must be above 0");
  expects(start > 0 && start <= most, "find_peak: start must be above 0 and at most the limit");
  double low = 0;
  double high = start;
  if (holds(start)) {
    for (low = start; (high = 2 * low) <= most && holds(high);) low = high;
    if (high > most) return low;
  } else {
    for (int i = 0; i < 20 && low == 0; ++i) {
      const double half = high / 2;
      (holds(half) ? low : high) = half;
    }
    if (low == 0) return 0;
  }
  while (high - low > precision * low) {
    const double middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

/// A window of delay-batch and its peak.
struct tuned_window {
  duration window{};
  double peak_rps = 0;
};

/// Tunes delay-batch: the smallest of `windows` with a peak within `slack` of the best.
/// @param peak Returns the peak for a window, in requests per second.
template <class Peak>
tuned_window tune_delay(std::span<const duration> windows, double slack, Peak&& peak) {
  expects(!windows.empty(), "tune_delay: windows must not be empty");
  std::vector<tuned_window> all;
  double best = 0;
  for (const duration w : windows) {
    all.push_back({w, peak(w)});
    best = std::max(best, all.back().peak_rps);
  }
  std::ranges::sort(all, {}, &tuned_window::window);
  return *std::ranges::find_if(
      all, [&](const tuned_window& t) { return t.peak_rps >= (1 - slack) * best; });
}

}  // namespace cohort::sim
