// SPDX-License-Identifier: Apache-2.0
/// @file
/// Notices that the load has become another: `load_watch`.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred {

/// Compares the rate of each 128 arrivals with the mean of those before: one that differs from it
/// by half and by five times what is usual is a step. Bursts that are usual are none. O(1) an
/// arrival, most of them an increment. Thread safety: none.
class load_watch {
 public:
  /// An arrival. @returns Whether the load has become another.
  bool add(time_point now) noexcept {
    if (left_ > 0) {
      --left_;
      return false;
    }
    left_ = block - 1;
    if (start_ == distant_past) {
      start_ = last_ = now;
      --left_;  // This one is of the first block.
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
    // The deviations from a mean of few are too small.
    if (blocks_ > 1) spread_ += (off * off * (blocks_ - 1) / blocks_ - spread_) / blocks_;
    return false;
  }
  /// Since when the load is as it is, as far as is known.
  [[nodiscard]] time_point since() const noexcept { return start_; }

 private:
  static constexpr std::uint32_t block = 128;
  static constexpr double known = 4;
  static constexpr double half = 0.405;  // Of the logarithm: 1.5 times.

  time_point start_ = distant_past;
  time_point last_ = distant_past;
  std::uint32_t left_ = 0;  // Arrivals that the block lacks, but for its last.
  double mean_ = 0;         // Of the logarithm of the rates of blocks,
  double spread_ = 0;       // and its variance.
  double blocks_ = 0;       // That they are of.
};

}  // namespace cohort::deferred
