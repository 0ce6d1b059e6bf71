// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lets a thread sleep until another wakes it: `parker`.
#pragma once

#include <cohort/core/time.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace cohort::engine {

/// A thread without work parks; a thread that gives it work unparks it, at the cost of one load
/// while it is awake. No wake-up is lost: the giver publishes the work before it checks for a
/// sleeper; the sleeper announces itself before it checks for work once more; and both are
/// sequentially consistent (`dirty_set::mark`, `ring::push`, `inlet::push`). Thread safety: one
/// thread parks; any unparks.
class parker {
 public:
  /// Sleeps until `early` before `until` by the machine's steady clock, unless `has_work()`, or
  /// until `unpark`.
  template <class HasWork>
  void park_until(time_point until, duration early, HasWork&& has_work) {
    std::unique_lock lock{mutex_};
    parked_.store(true);
    if (!has_work()) {
      const auto is_woken = [this] { return !parked_.load(std::memory_order_relaxed); };
      if (until == never) {
        arrived_.wait(lock, is_woken);
      } else {
        arrived_.wait_until(lock,
                            std::chrono::steady_clock::time_point{
                                std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                    (until - early).time_since_epoch())},
                            is_woken);
      }
    }
    parked_.store(false);
  }
  /// @returns Whether the thread slept.
  bool unpark() noexcept {
    if (!parked_.load()) return false;
    const std::lock_guard lock{mutex_};
    parked_.store(false);
    arrived_.notify_one();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::atomic<bool> parked_{false};
};

}  // namespace cohort::engine
