// SPDX-License-Identifier: Apache-2.0
/// @file
/// Detects changes of the load: `load_watch`.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// Compares the rate of each 128 arrivals with the mean of the earlier blocks. A block that differs
/// from it by half and by five times the usual deviation is a step; usual bursts are not. O(1) an
/// arrival, mostly an increment. Thread safety: none.
class load_watch {
 public:
  /// Adds an arrival. @returns Whether the load has changed.
  bool add(time_point now) noexcept {
    if (left_ > 0) {
      --left_;
      return false;
    }
    left_ = block - 1;
    if (start_ == distant_past) {
      start_ = last_ = now;
      --left_;  // This one is part of the first block.
      return false;
    }
    const double took = std::max(1e-9, to_seconds(now - last_));
    const double log_rate = std::log(block / took);
    const time_point began = last_;
    last_ = now;
    const double off = log_rate - mean_;
    const double most = std::max(half, 5 * std::sqrt(spread_));
    if (blocks_ >= known && std::abs(off) > most) {
      start_ = began;
      mean_ = log_rate;
      blocks_ = 1;
      return true;
    }
    blocks_ = std::min(blocks_ + 1, 16.0);
    mean_ += off / blocks_;
    // With few blocks, deviations from their mean are too small.
    if (blocks_ > 1) spread_ += (off * off * (blocks_ - 1) / blocks_ - spread_) / blocks_;
    return false;
  }
  /// Start of the present load, as far as is known.
  [[nodiscard]] time_point since() const noexcept { return start_; }

 private:
  static constexpr std::uint32_t block = 128;
  static constexpr double known = 4;
  static constexpr double half = 0.405;  // Logarithm of 1.5.

  time_point start_ = distant_past;
  time_point last_ = distant_past;
  std::uint32_t left_ = 0;  // Arrivals before the last one of the block.
  double mean_ = 0;         // Mean logarithm of the rates of blocks,
  double spread_ = 0;       // and its variance.
  double blocks_ = 0;       // Number of these blocks.
};

}  // namespace cohort::deferred
