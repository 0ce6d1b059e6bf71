// SPDX-License-Identifier: Apache-2.0
/// @file
/// What it costs that requests wait, if a device serves all that wait in one row: `queue_value`.
#pragma once

#include <cohort/core/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::batching {

/// The relative value of a queue, in request-milliseconds: what x waiting requests cost from now on
/// beyond what as long a time costs in the long run. They take D(x), then as many wait as have come
/// meanwhile, at λ a millisecond, and so on until the queue is what it usually is:
///   V(x) = (x + λ D(x) / 2 − g) D(x) + V(λ D(x)),
/// where g is what a millisecond costs in the long run: the requests that are there then. Whoever
/// weighs two decisions by their own cost and V of what they leave makes a step of policy iteration
/// from zero-batch, which is stable wherever all the largest rows are. A load beyond those counts
/// as much as they carry: then a request that is served is worth what it takes, whatever waits.
/// Numbers are means: no chance. O(1), some dozens of steps. Thread safety: full.
/// Source: this project's (docs/batching/diversity.md).
class queue_value {
 public:
  /// @param times D of 0, 1, 2, ... requests, up to the largest row, in milliseconds; at least two.
  ///              Outlives it. Beyond, as many rows as it takes.
  /// @param rate Requests that arrive in a millisecond; at least 0.
  queue_value(std::span<const double> times, double rate) noexcept
      : times_{times}, rate_{std::min(rate, largest() / times.back())} {
    double x = 0;
    for (int i = 0; i < most_steps; ++i) x = next(std::max(1.0, x));
    usual_ = x;
    cost_rate_ = x + rate_ * time_of(x) / 2;
  }

  /// Requests that wait when a row ends, in the long run.
  [[nodiscard]] double usual() const noexcept { return usual_; }
  /// Of `ms` of the device, at the beginning of which x wait, and of those who come meanwhile.
  [[nodiscard]] double wait(double x, double ms) const noexcept {
    return (x + rate_ * ms / 2 - cost_rate_) * ms + value(x + rate_ * ms);
  }
  /// Of the next millisecond of the device, if x wait: how many requests it delays.
  [[nodiscard]] double price(double x) const noexcept {
    const double step = std::max(1.0, x / 8);
    return x - cost_rate_ + rate_ * (value(x + step) - value(x)) / step;
  }

 private:
  static constexpr int most_steps = 32;

  [[nodiscard]] double largest() const noexcept { return static_cast<double>(times_.size() - 1); }
  [[nodiscard]] double time_of(double x) const noexcept {
    if (x >= largest()) return times_.back() * x / largest();
    const auto n = static_cast<std::size_t>(x);
    return times_[n] + (x - static_cast<double>(n)) * (times_[n + 1] - times_[n]);
  }
  /// What is waiting after x have been served.
  [[nodiscard]] double next(double x) const noexcept { return rate_ * time_of(x); }
  [[nodiscard]] double value(double x) const noexcept {
    double sum = 0;
    for (int i = 0; i < most_steps && std::abs(x - usual_) > 0.01 * (1 + usual_); ++i) {
      const double t = time_of(x);
      sum += (x + rate_ * t / 2 - cost_rate_) * t;
      x = next(x);
    }
    return sum;
  }

  std::span<const double> times_;
  double rate_;
  double usual_ = 0;
  double cost_rate_ = 0;
};

}  // namespace cohort::batching
