// SPDX-License-Identifier: Apache-2.0
/// @file
/// A load that rises and falls: by given points, or in two waves.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>
#include <vector>

namespace cohort::sim {

/// Fraction of the full load over time: linear between points, constant before the first and after
/// the last. Thread safety: immutable.
class load_curve {
 public:
  struct point {
    double at_s = 0;
    double part = 0;  ///< Fraction of the full load; at least 0.
  };

  /// @throws config_error If there is no point, times do not rise, or a fraction is not at least 0.
  explicit load_curve(std::vector<point> points) : points_{std::move(points)} {
    expects(!points_.empty(), "load_curve: at least one point");
    for (std::size_t i = 0; i < points_.size(); ++i) {
      expects(std::isfinite(points_[i].at_s) && (i == 0 || points_[i].at_s > points_[i - 1].at_s),
              "load_curve: times must rise");
      expects(std::isfinite(points_[i].part) && points_[i].part >= 0,
              "load_curve: parts must be at least 0");
    }
  }

  /// O(log points).
  [[nodiscard]] double operator()(double at_s) const noexcept {
    const auto after = std::ranges::upper_bound(points_, at_s, {}, &point::at_s);
    if (after == points_.begin()) return points_.front().part;
    if (after == points_.end()) return points_.back().part;
    const point& a = *(after - 1);
    return a.part + (after->part - a.part) * (at_s - a.at_s) / (after->at_s - a.at_s);
  }
  /// The largest fraction.
  [[nodiscard]] double most() const noexcept {
    return std::ranges::max_element(points_, {}, &point::part)->part;
  }

 private:
  std::vector<point> points_;
};

/// Two waves within `length_s`, the second higher: from a quarter of the load up to 0.7 in the
/// first third, and up to 1 in the second half; a quarter before and after. The shape of the trace
/// in the gpu-let paper, section 6.2. `length_s` must be above 0.
[[nodiscard]] inline double two_waves(double at_s, double length_s) noexcept {
  const auto hill = [x = at_s / length_s](double from, double to) {
    const double part = (x - from) / (to - from);
    return part > 0 && part < 1 ? std::pow(std::sin(std::numbers::pi * part), 2) : 0.0;
  };
  return 0.25 + 0.45 * hill(0, 1.0 / 3) + 0.75 * hill(0.5, 29.0 / 30);
}

}  // namespace cohort::sim
