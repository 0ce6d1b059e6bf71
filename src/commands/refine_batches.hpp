// SPDX-License-Identifier: Apache-2.0
/// @file
/// Chooses batch sizes to measure so that linear interpolation gives the others.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace cohort::commands {

/// Measurements of one batch size.
struct refined_size {
  double ms = 0;        ///< Median; above 0.
  double noise_ms = 0;  ///< Standard error of the median; at least 0.
};

/// A size measured to check the line between two others, with the result.
struct added_size {
  std::uint32_t batch = 0;
  std::uint32_t below = 0, above = 0;  ///< The sizes that the line goes through.
  double gap = 0;                      ///< Measured over the line, less 1.
  double noise = 0;                    ///< Possible noise of that gap, relative to the line.

  [[nodiscard]] bool is_off() const noexcept { return std::abs(gap) > noise; }
};

/// Bisects intervals where the line between two measured sizes deviates by more than noise. Begins
/// with 1, 4, 16, ... and the largest; measures a size near the middle of each interval; if that
/// deviates from the line, the middles of both halves, the worst first, until none deviates, no
/// size is left between, or there are `most_sizes`. So steps are located exactly. It only sees
/// deviations at the middles, which are odd: kernels step at even sizes, and a middle at the top of
/// each step would lie on the line. A value: it measures nothing and knows no clock.
class batch_refinement {
 public:
  struct options {
    std::uint32_t largest = 32;   ///< At least 1.
    std::size_t most_sizes = 32;  ///< Measured in total; the first ones are always included.
    double tolerance = 0.02;      ///< Largest accepted gap, relative to the line.
    double standard_errors = 3;   ///< A gap within this many may be noise.
  };

  explicit batch_refinement(const options& o) : options_{o} {
    std::uint32_t below = 0;
    for (std::uint32_t b = 1;; b = b > o.largest / 4 ? o.largest : 4 * b) {
      wanted_.push_back(b);
      if (below != 0) intervals_.push_back({below, b, 1});  // Checked before those known better.
      below = b;
      if (b == o.largest) return;
    }
  }

  /// The sizes to measure next, ascending; none: done.
  [[nodiscard]] const std::vector<std::uint32_t>& wanted() const noexcept { return wanted_; }

  /// Takes measurements, and decides on further sizes.
  /// @param measured By batch size: the wanted ones, and all earlier ones, which may have been
  /// measured again beside them so that a disturbance affects all.
  void take(std::map<std::uint32_t, refined_size> measured) {
    known_ = std::move(measured);
    for (const interval& i : std::exchange(checked_, {})) {
      const added_size a = compare(i.low, middle(i), i.high);
      added_.push_back(a);
      if (!a.is_off()) continue;
      intervals_.push_back({i.low, a.batch, std::abs(a.gap)});
      intervals_.push_back({a.batch, i.high, std::abs(a.gap)});
    }
    choose();
  }

  /// The sizes measured to check lines, in order.
  [[nodiscard]] const std::vector<added_size>& added() const noexcept { return added_; }
  /// Whether inaccurate lines may remain, because the maximum number of sizes was reached.
  [[nodiscard]] bool was_cut_short() const noexcept { return !intervals_.empty(); }

 private:
  struct interval {
    std::uint32_t low, high;
    double gap;  // Gap of the line that it halves.
  };

  static std::uint32_t middle(const interval& i) noexcept {
    const std::uint32_t m = i.low + (i.high - i.low) / 2;
    return m % 2 == 0 && m + 1 < i.high ? m + 1 : m;
  }

  void choose() {
    wanted_.clear();
    std::erase_if(intervals_, [](const interval& i) { return i.high - i.low < 2; });
    std::ranges::sort(intervals_, [](const interval& a, const interval& b) {
      return a.gap != b.gap ? a.gap > b.gap : a.low < b.low;
    });
    const std::size_t room = options_.most_sizes - std::min(options_.most_sizes, known_.size());
    const std::size_t n = std::min(room, intervals_.size());
    const auto end = intervals_.begin() + static_cast<std::ptrdiff_t>(n);
    checked_.assign(intervals_.begin(), end);
    intervals_.erase(intervals_.begin(), end);
    for (const interval& i : checked_) wanted_.push_back(middle(i));
    std::ranges::sort(wanted_);
  }

  [[nodiscard]] added_size compare(std::uint32_t low, std::uint32_t batch,
                                   std::uint32_t high) const {
    const refined_size& a = known_.at(low);
    const refined_size& x = known_.at(batch);
    const refined_size& b = known_.at(high);
    const double part = static_cast<double>(batch - low) / (high - low);
    const double line = a.ms + part * (b.ms - a.ms);
    const double error = std::hypot((1 - part) * a.noise_ms, x.noise_ms, part * b.noise_ms);
    return {.batch = batch,
            .below = low,
            .above = high,
            .gap = x.ms / line - 1,
            .noise = std::max(options_.tolerance, options_.standard_errors * error / line)};
  }

  options options_;
  std::map<std::uint32_t, refined_size> known_{};
  std::vector<interval> intervals_{};  // To be checked.
  std::vector<interval> checked_{};    // Their middles are being measured.
  std::vector<std::uint32_t> wanted_{};
  std::vector<added_size> added_{};
};

}  // namespace cohort::commands
