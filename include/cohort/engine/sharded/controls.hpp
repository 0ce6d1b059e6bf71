// SPDX-License-Identifier: Apache-2.0
/// @file
/// Occasional actions for another thread: `controls`.
#pragma once

#include <cohort/core/time.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Actions for a busy thread: while there are none they cost it one load a turn. Thread safety: any
/// thread posts; one takes.
class controls {
 public:
  using action = std::function<void(time_point)>;

  /// Posts `act(now)`, then calls `wake()`.
  template <class Wake>
  void post(action act, Wake&& wake) {
    {
      const std::lock_guard lock{mutex_};
      waiting_.push_back(std::move(act));
      has_any_.store(true);
    }
    wake();
  }
  /// Posts and waits until it is done. @throws The action's exceptions.
  template <class Act, class Wake>
  void run(Act&& act, Wake&& wake) {
    // Shared: the thread that sets the promise may still use it when the other continues.
    const auto done = std::make_shared<std::promise<void>>();
    std::exception_ptr error;  // Here, so that it is destroyed here.
    post(
        [&act, &error, done](time_point now) {
          try {
            act(now);
          } catch (...) {
            error = std::current_exception();
          }
          done->set_value();
        },
        std::forward<Wake>(wake));
    done->get_future().get();
    if (error) std::rethrow_exception(std::move(error));
  }

  /// Runs all posted actions. @returns Whether there were any.
  bool take(time_point now) {
    if (!has_any_.load()) return false;
    std::vector<action> taken;
    {
      const std::lock_guard lock{mutex_};
      taken.swap(waiting_);
      has_any_.store(false);
    }
    for (const action& act : taken) act(now);
    return true;
  }
  /// Whether `take` would find something.
  [[nodiscard]] bool has_posted() const noexcept { return has_any_.load(); }
  /// Whether the thread must not sleep.
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load() || is_stopped_.load(); }

  /// Tells the thread to end.
  void stop() noexcept { is_stopped_.store(true); }
  [[nodiscard]] bool is_stopped() const noexcept {
    return is_stopped_.load(std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;
  std::vector<action> waiting_;
  std::atomic<bool> has_any_{false};
  std::atomic<bool> is_stopped_{false};
};

}  // namespace cohort::engine
