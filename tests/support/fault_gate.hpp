// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is the matter with a device of a test in threads: `fault_gate`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace cohort::test {

/// Whoever passes waits, fails or takes its time, as long as the test wants it. Any thread.
class fault_gate {
 public:
  enum class kind : std::uint8_t { none, hangs, fails, is_slow };

  void set(kind k) {
    {
      const std::lock_guard lock{mutex_};
      kind_ = k;
    }
    changed_.notify_all();
  }
  /// On a thread of the device. While it hangs, until it does not. @throws runtime_error If it
  /// fails.
  void pass() {
    if (late() == kind::fails) throw std::runtime_error{"not today"};
  }
  /// The same, but for failing: where what is called may not.
  void pass_late() { late(); }

 private:
  kind late() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return kind_ != kind::hangs; });
    const kind k = kind_;
    lock.unlock();
    for (int i = 0; k == kind::is_slow && i < 100; ++i) std::this_thread::yield();
    return k;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  kind kind_ = kind::none;
};

}  // namespace cohort::test
