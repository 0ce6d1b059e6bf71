// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a thread has more to do than time.
#pragma once

#include <cohort/core/time.hpp>

#include <algorithm>
#include <array>
#include <chrono>

namespace cohort::serve {

/// How much of the last moments a thread waited for work. One that is runnable but does not run,
/// for others have the processor, counts as busy: it has no time left either. A value; O(1).
class busy_meter {
 public:
  /// It waited for work, and does not any more.
  void waited(time_point from, time_point to) noexcept {
    turn(to);
    idle_[1] += to - std::max(from, begun_[1]);
    if (from < begun_[1]) idle_[0] += begun_[1] - std::min(begun_[1], std::max(from, begun_[0]));
  }
  /// Whether it waited for less than a fifth of the last 100 to 200 ms.
  [[nodiscard]] bool is_busy(time_point now) noexcept {
    turn(now);
    return 5 * (idle_[0] + idle_[1]) < now - begun_[0];
  }

 private:
  static constexpr duration period = std::chrono::milliseconds{100};

  /// A whole period, and the one under way.
  void turn(time_point now) noexcept {
    if (now - begun_[1] < period) return;
    // Of what nothing was heard it was busy.
    const bool is_old = now - begun_[1] >= 2 * period;
    idle_ = {is_old ? duration{0} : idle_[1], duration{0}};
    begun_ = {is_old ? now - period : begun_[1], now};
  }

  std::array<duration, 2> idle_{};
  std::array<time_point, 2> begun_{};
};

}  // namespace cohort::serve
