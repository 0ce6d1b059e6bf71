// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cost of waiting requests on a device that serves all of them in one row: `queue_value`.
#pragma once

#include <cohort/core/version.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace cohort::batching {

/// The relative value of a queue, in request-milliseconds: the cost of x waiting requests from now
/// on, in excess of the long-run cost over the same time. They take D(x); then the requests that
/// arrived meanwhile, at λ per millisecond, wait, and so on until the queue has its usual length:
///   V(x) = (x + λ D(x) / 2 − g) D(x) + V(λ D(x)),
/// where g is the long-run cost of a millisecond: the mean number of requests in the system.
/// Comparing decisions by their own cost plus V of the queue they leave is one step of policy
/// iteration from zero-batch, which is stable whenever rows of the largest size are. A load above
/// their capacity counts as that capacity: a served request is then worth the time it takes,
/// regardless of the queue. All numbers are means; randomness is ignored. O(1), some dozens of
/// steps. Thread safety: full. Source: this project's (docs/batching/diversity.md).
class queue_value {
 public:
  /// @param times D of 0, 1, 2, ... requests, up to the largest row, in milliseconds; at least two.
  ///              Must outlive this object. Longer queues take several rows.
  /// @param rate Arrivals per millisecond; at least 0.
  queue_value(std::span<const double> times, double rate) noexcept
      : times_{times}, rate_{std::min(rate, largest() / times.back())} {
    double x = 0;
    for (int i = 0; i < most_steps; ++i) x = next(std::max(1.0, x));
    usual_ = x;
    cost_rate_ = x + rate_ * time_of(x) / 2;
  }

  /// Requests that wait when a row ends, in the long run.
  [[nodiscard]] double usual() const noexcept { return usual_; }
  /// Cost of `ms` of device time: x requests wait when it begins, and others arrive meanwhile.
  [[nodiscard]] double wait(double x, double ms) const noexcept {
    return (x + rate_ * ms / 2 - cost_rate_) * ms + value(x + rate_ * ms);
  }
  /// Cost of the next millisecond of device time with x requests waiting: the number it delays.
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
  /// Number of requests waiting after x have been served.
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
