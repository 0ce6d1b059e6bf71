// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether a thread has more to do than time.
#pragma once

#include <cohort/core/time.hpp>

#include <chrono>
#include <optional>

namespace cohort::serve {

/// Decides from samples of a thread's total busy time whether it was recently busy: it had nothing
/// to do for less than a fifth of the time between the last two samples. A value; O(1).
///
/// A runnable thread that waits for the processor also counts as busy. It has no time left, and the
/// time that it took to wake is no idle time.
class busy_meter {
 public:
  /// Whether the last sample is 100 ms old, or there is none.
  [[nodiscard]] bool is_due(time_point now) const noexcept {
    return !last_ || now - last_->when >= std::chrono::milliseconds{100};
  }
  /// @param busy Total so far, from any origin; never less than before.
  void sample(time_point now, duration busy) noexcept {
    if (last_) is_busy_ = 5 * (now - last_->when - (busy - last_->busy)) < now - last_->when;
    last_ = {now, busy};
  }
  /// True before the second sample, when it is not known.
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
