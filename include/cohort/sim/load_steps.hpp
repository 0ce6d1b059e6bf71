// SPDX-License-Identifier: Apache-2.0
/// @file
/// An offered rate that changes in steps: `load_steps`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::sim {

/// The fraction of the configured rate from an instant on.
struct load_step {
  duration at{0};   ///< Since the start of the run; at least 0.
  double part = 1;  ///< At least 0.
};

/// Stretches arrivals drawn at a constant rate to follow steps: at fraction p, a gap takes 1 / p of
/// its time. Runs with other steps see the same pattern. Before the first step the fraction is 1.
/// Thread safety: immutable.
class load_steps {
 public:
  load_steps() noexcept = default;
  /// @throws config_error If instants do not rise, or a fraction is not a number of at least 0.
  explicit load_steps(std::vector<load_step> steps) : steps_{std::move(steps)} {
    double drawn = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const load_step& s = steps_[i];
      expects(s.at >= duration{0} && (i == 0 || s.at > steps_[i - 1].at),
              "load: at must be at least 0 and rise");
      expects(std::isfinite(s.part) && s.part >= 0, "load: part must be at least 0");
      const duration before = i == 0 ? s.at : s.at - steps_[i - 1].at;
      drawn += static_cast<double>(before.count()) * (i == 0 ? 1 : steps_[i - 1].part);
      drawn_.push_back(drawn);
    }
  }

  [[nodiscard]] bool empty() const noexcept { return steps_.empty(); }
  /// The fraction at an instant. O(log steps).
  [[nodiscard]] double part_at(time_point t) const noexcept {
    const auto after = std::ranges::upper_bound(steps_, t.time_since_epoch(), {}, &load_step::at);
    return after == steps_.begin() ? 1 : (after - 1)->part;
  }
  /// The inverse of `stretched`: the drawn time that corresponds to `real_ns`.
  [[nodiscard]] double drawn(double real_ns) const noexcept {
    const auto after = std::ranges::upper_bound(
        steps_, real_ns, {}, [](const load_step& s) { return static_cast<double>(s.at.count()); });
    if (after == steps_.begin()) return real_ns;
    const auto i = static_cast<std::size_t>(after - steps_.begin()) - 1;
    return drawn_[i] + (real_ns - static_cast<double>(steps_[i].at.count())) * steps_[i].part;
  }
  /// The real time of an arrival drawn at `drawn_ns`, in nanoseconds from the start; infinite if
  /// never. O(log steps).
  [[nodiscard]] double stretched(double drawn_ns) const noexcept {
    const auto after = std::ranges::lower_bound(drawn_, drawn_ns);
    if (after == drawn_.begin()) return drawn_ns;
    const auto i = static_cast<std::size_t>(after - drawn_.begin()) - 1;
    return static_cast<double>(steps_[i].at.count()) + (drawn_ns - drawn_[i]) / steps_[i].part;
  }

 private:
  std::vector<load_step> steps_;
  std::vector<double> drawn_;  // The drawn time at each step.
};

}  // namespace cohort::sim
