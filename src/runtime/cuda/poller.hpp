// SPDX-License-Identifier: Apache-2.0
/// @file
/// The thread that finds out which notifications are due.
#pragma once

#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/executor.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cohort::runtime::detail {

/// What CUDA says once a device is lost to this process. Thread safety: any thread.
class device_health {
 public:
  [[nodiscard]] bool is_good() const noexcept { return good_.load(std::memory_order_acquire); }
  /// Remembers the first error that stays.
  void note(cudaError_t e, const char* call) noexcept;
  [[nodiscard]] std::string failure() const;

 private:
  std::atomic<bool> good_{true};
  mutable std::mutex mutex_;
  std::string failure_;
};

/// One stream's notifications, in its order: a ring that grows to the most that were outstanding,
/// so that a stream at work does not allocate.
class notification_lane {
 public:
  struct entry {
    cuda::event behind;  // Empty: due at once.
    completion* done = nullptr;
    bool failed = false;
  };

  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] entry& front() noexcept { return ring_[first_]; }
  void push(entry e) {
    if (count_ == ring_.size()) grow();
    ring_[(first_ + count_++) % ring_.size()] = std::move(e);
  }
  entry pop() noexcept {
    entry e = std::move(ring_[first_]);
    first_ = (first_ + 1) % ring_.size();
    --count_;
    return e;
  }

  bool is_delivering = false;

 private:
  void grow() {
    std::vector<entry> larger(2 * ring_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
    }
    ring_ = std::move(larger);
    first_ = 0;
  }

  std::vector<entry> ring_ = std::vector<entry>(8);
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Polls the first event of every lane and calls the completions, on its own thread. Polling
/// rather than host functions: those run on a thread of the driver which the stream waits for, and
/// are never called once the device has failed.
class poller {
 public:
  poller(int device, std::chrono::microseconds interval, cuda::event_pool& events,
         device_health& health);
  /// All lanes must be closed.
  ~poller();
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  void open(notification_lane& lane);
  /// Waits until all its notifications have been delivered.
  void close(notification_lane& lane);
  void push(notification_lane& lane, notification_lane::entry e);

 private:
  void run();
  /// Delivers what is due; whether anything was. Under the lock, which it gives up meanwhile.
  bool deliver(std::unique_lock<std::mutex>& lock);

  int device_;
  std::chrono::microseconds interval_;
  cuda::event_pool& events_;
  device_health& health_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<notification_lane*> lanes_;
  std::size_t outstanding_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cohort::runtime::detail
