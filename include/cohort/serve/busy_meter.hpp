// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a thread has more to do than time.
#pragma once

#include <cohort/core/time.hpp>

#include <chrono>
#include <optional>

namespace cohort::serve {

/// Says from samples of how long a thread was busy so far whether it was busy of late: it is if it
/// had nothing to do for less than a fifth of the time between the last two samples. A value; O(1).
///
/// Busy is also who is runnable and does not run, for others have the processor. Such a thread has
/// no time left, and how long it took to wake says nothing of how long it had nothing to do.
class busy_meter {
 public:
  /// Whether the last sample is 100 ms old, or there is none.
  [[nodiscard]] bool is_due(time_point now) const noexcept {
    return !last_ || now - last_->when >= std::chrono::milliseconds{100};
  }
  /// @param busy So far, from any origin; never less than before.
  void sample(time_point now, duration busy) noexcept {
    if (last_) is_busy_ = 5 * (now - last_->when - (busy - last_->busy)) < now - last_->when;
    last_ = {now, busy};
  }
  /// Nobody knows before the second sample: it is busy then.
  [[nodiscard]] bool is_busy() const noexcept { return is_busy_; }

 private:
  struct reading {
    time_point when;
    duration busy;
  };
  std::optional<reading> last_;
  bool is_busy_ = true;
};

}  // namespace cohort::serve
