// SPDX-License-Identifier: Apache-2.0
/// @file
/// The distribution of recent positive values, in constant space: `quantile_sketch`.
#pragma once

#include <cohort/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort {

/// The range of values that a sketch distinguishes. Values outside count as the nearest inside.
struct sketch_range {
  double lowest = 1.0 / 64;  ///< Above 0.
  double highest = 64;       ///< Above `lowest`.
};

/// A histogram with sixteen bins per octave. Old values fade: a value's weight falls to 1 / e
/// within `memory` further ones. A bin remembers the mean of its values, so equal values are
/// reproduced exactly; otherwise quantiles err by at most half a bin, 3 %. Cost: `add` O(1),
/// without a logarithm; `quantile` O(bins). Memory: 16 bytes a bin. Allocates only at construction.
/// Thread safety: none.
class quantile_sketch {
 public:
  /// @param memory How many values count; at least 1.
  /// @throws config_error If the range is empty or the memory below 1.
  explicit quantile_sketch(sketch_range range = {}, double memory = 1024)
      : range_{range}, growth_{1 + 1 / memory} {
    expects(range.lowest > 0 && range.highest > range.lowest && std::isfinite(range.highest),
            "quantile_sketch: lowest must be above 0 and below highest");
    expects(memory >= 1, "quantile_sketch: memory must be at least 1");
    first_ = key(range.lowest);
    bins_.resize(key(range.highest) - first_ + 1);
    lowest_ = bins_.size();
  }

  /// Adds a value. NaN is ignored.
  void add(double x) noexcept {
    if (std::isnan(x)) return;
    x = std::clamp(x, range_.lowest, range_.highest);
    weight_ *= growth_;
    const std::size_t i = key(x) - first_;
    lowest_ = std::min(lowest_, i);
    bin& b = bins_[i];
    b.weight += weight_;
    b.sum += weight_ * x;
    total_.weight += weight_;
    total_.sum += weight_ * x;
    ++count_;
    if (weight_ > 1e100) rescale();
  }
  /// Forgets all.
  void clear() noexcept {
    std::ranges::fill(bins_, bin{});
    total_ = {};
    lowest_ = bins_.size();
    weight_ = 1;
    count_ = 0;
  }

  /// Values added since the sketch was made or cleared.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Mean of the recent values; 0 without any.
  [[nodiscard]] double mean() const noexcept {
    return total_.weight > 0 ? total_.sum / total_.weight : 0;
  }
  /// The q-quantile of the recent values, q from 0 to 1; 0 without any. Within a bin it rises from
  /// halfway to the mean of the bin below to halfway to that of the bin above, where these bins
  /// hold values; an empty neighbour is not interpolated towards.
  [[nodiscard]] double quantile(double q) const noexcept {
    const double wanted = q * total_.weight;
    double below = 0;  // Weight of the bins before.
    double last = 0;
    for (std::size_t i = lowest_; i < bins_.size(); ++i) {
      const bin& b = bins_[i];
      if (b.weight <= 0) continue;
      last = b.mean();
      if (wanted <= below + b.weight) {
        const double low = edge(i, i > 0 ? i - 1 : i);
        const double high = edge(i, std::min(i + 1, bins_.size() - 1));
        return low + (high - low) * std::max(0.0, wanted - below) / b.weight;
      }
      below += b.weight;
    }
    return last;  // Rounding.
  }

 private:
  struct bin {
    double weight = 0;
    double sum = 0;  // Sum of weight · value.
    [[nodiscard]] double mean() const noexcept { return sum / weight; }
  };

  [[nodiscard]] double edge(std::size_t i, std::size_t neighbour) const noexcept {
    const double mean = bins_[i].mean();
    return bins_[neighbour].weight > 0 ? (mean + bins_[neighbour].mean()) / 2 : mean;
  }

  /// Exponent and the first four bits behind the point: sixteen linear bins an octave.
  static std::size_t key(double x) noexcept {
    return static_cast<std::size_t>(std::bit_cast<std::uint64_t>(x) >> 48U);
  }

  /// The weight of new values grows, instead of that of old ones shrinking. Rescales before the
  /// weight overflows.
  void rescale() noexcept {
    total_ = {};
    for (bin& b : bins_) {
      b.weight /= weight_;
      b.sum /= weight_;
      total_.weight += b.weight;
      total_.sum += b.sum;
    }
    weight_ = 1;
  }

  sketch_range range_;
  double growth_;
  std::size_t first_ = 0;  // Key of the first bin.
  std::vector<bin> bins_;
  std::size_t lowest_ = 0;  // The first bin that ever held something.
  bin total_;
  double weight_ = 1;
  std::uint64_t count_ = 0;
};

}  // namespace cohort
