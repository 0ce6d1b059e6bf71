// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measures a pool of devices for the policies: `pool_meter`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// Tracks a pool's idle fraction, its batch lengths and how many models share it, over about the
/// last quarter second and the last few hundred batches. Cost: O(1) a call, O(models) once in some
/// 60,000 batches. Allocates only in `reserve_models`. Thread safety: none.
class pool_meter {
 public:
  /// Shortest period over which the idle fraction is averaged.
  static constexpr duration period = std::chrono::milliseconds{50};
  /// Older idle time does not count.
  static constexpr duration memory = std::chrono::milliseconds{250};

  /// Makes room for models with ids below `count`.
  void reserve_models(std::size_t count) { work_.resize(std::max(work_.size(), count)); }

  /// Notes that `idle` of `devices` had no work since the last call. Call it before either changes.
  void on_time(time_point now, std::size_t idle, std::size_t devices) noexcept {
    if (devices == 0 || now <= measured_) return;
    if (measured_ != distant_past) {
      idle_time_ +=
          to_seconds(now - measured_) * static_cast<double>(idle) / static_cast<double>(devices);
    }
    measured_ = now;
    if (period_ == distant_past) period_ = now;
    if (now - period_ >= period) {
      const double width = to_seconds(now - period_);
      view_.idle_fraction +=
          (idle_time_ / width - view_.idle_fraction) * std::min(1.0, width / to_seconds(memory));
      idle_time_ = 0;
      period_ = now;
    }
  }

  /// Notes that a batch of the model was sent and should run for `expected`.
  void on_batch(model_id id, duration expected) noexcept {
    const double length = to_seconds(expected);
    length_ += (length - length_) / 64;
    length_squares_ += (length * length - length_squares_) / 64;

    // Equivalent to decaying all models' work: the weight of new work grows.
    constexpr double growth = 1 + 1.0 / 256;
    constexpr double most = 1e100;
    weight_ *= growth;
    double& work = work_[id.index()];
    const double before = work;
    work += weight_ * length;
    work_sum_ += weight_ * length;
    work_squares_ += work * work - before * before;
    if (weight_ > most) {
      work_sum_ = work_squares_ = 0;
      for (double& w : work_) {
        w /= most;
        work_sum_ += w;
        work_squares_ += w * w;
      }
      weight_ /= most;
    }
    // Weighted by busy time, not by batches: a random moment meets long batches more often.
    if (length_ > 0) view_.typical_batch = from_seconds(length_squares_ / length_);
    if (work_squares_ > 0) view_.models = work_sum_ * work_sum_ / work_squares_;
  }

  [[nodiscard]] double idle_fraction() const noexcept { return view_.idle_fraction; }
  /// Measurements for the policies, for a pool of `devices`.
  [[nodiscard]] pool_view view(std::size_t devices) const noexcept {
    pool_view v = view_;
    v.devices = static_cast<std::uint32_t>(devices);
    return v;
  }

 private:
  pool_view view_{.idle_fraction = 1};  // Except `devices`.
  double idle_time_ = 0;                // Since `period_`, as a multiple of the whole pool.
  time_point measured_ = distant_past;
  time_point period_ = distant_past;
  double length_ = 0;  // Sum of recent batch lengths in seconds, and of their squares.
  double length_squares_ = 0;
  std::vector<double> work_;  // By model: recent device time, in growing units; and its sums.
  double weight_ = 1;
  double work_sum_ = 0;
  double work_squares_ = 0;
};

}  // namespace cohort::deferred
