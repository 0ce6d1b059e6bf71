// SPDX-License-Identifier: Apache-2.0
/// @file
/// The thread that polls for due notifications.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/runtime/cuda/event.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
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

/// Records the errors by which CUDA reports the loss of a device. Thread safety: any thread.
class device_health {
 public:
  [[nodiscard]] bool is_good() const noexcept { return good_.load(std::memory_order_acquire); }
  /// Keeps the first permanent error.
  void note(cudaError_t e, const char* call) noexcept;
  [[nodiscard]] std::string failure() const;

 private:
  std::atomic<bool> good_{true};
  mutable std::mutex mutex_;
  std::string failure_;
};

/// Pauses between polls for a stream's first notification. A stream repeats its work, so the poller
/// pauses for 7/8 of the time that the last work took, polls without a pause until 9/8, then pauses
/// for a sixteenth of the time beyond the last one. Thread safety: none.
class look_pace {
 public:
  static constexpr duration shortest = std::chrono::microseconds{20};  ///< Else no pause.
  static constexpr duration longest_late = std::chrono::milliseconds{1};

  /// Starts with another first notification.
  void begin(time_point now) noexcept {
    began_ = now;
    is_early_ = false;
  }
  /// The pause from now on; zero: poll again. The caller has just polled, and it was not due.
  [[nodiscard]] duration pause(time_point now) noexcept {
    const duration gone = now - began_;
    const duration early = usual_ - usual_ / 8 - gone;
    is_early_ = early >= shortest;
    if (is_early_) return early;
    if (gone <= usual_ + usual_ / 8) return {};
    const duration late = std::min((gone - usual_) / 16, longest_late);
    return late >= shortest ? late : duration{};
  }
  /// Notes that it was due. After a pause that was too long, its time is unknown.
  void end(time_point now) noexcept { usual_ = is_early_ ? usual_ * 3 / 4 : now - began_; }

 private:
  time_point began_{};
  duration usual_{0};
  bool is_early_ = false;  // The latest pause ended before the usual time.
};

/// One stream's notifications, in order: a ring that grows to the maximum outstanding, so that a
/// stream in steady use does not allocate.
class notification_lane {
 public:
  struct entry {
    cuda::event behind;  // Empty: due at once.
    completion* done = nullptr;
    bool failed = false;
    bool when_idle = false;  // No event: due when the stream is idle.
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

  std::atomic<std::size_t> outstanding{0};  ///< Undelivered, in or before the ring.
  look_pace pace;
  std::mutex stream_mutex;
  cudaStream_t stream = nullptr;  ///< For `when_idle`; guarded, since it moves.

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

/// Polls the first event of every lane and calls the completions, on its own thread. It polls
/// because host functions run on a driver thread for which the stream waits, and are never called
/// once the device has failed. Lanes belong to that thread, which takes the lock only for new
/// entries.
class poller {
 public:
  poller(int device, std::chrono::microseconds interval, cuda::event_pool& events,
         device_health& health);
  /// All lanes must be closed.
  ~poller();
  poller(const poller&) = delete;
  poller& operator=(const poller&) = delete;

  void push(notification_lane& lane, notification_lane::entry e);
  /// Waits until all its notifications have been delivered.
  void close(notification_lane& lane);

 private:
  struct arrival {
    notification_lane* lane;
    notification_lane::entry what;
  };

  void run();
  /// Moves new entries to their lanes; lanes with entries are in `busy_`.
  void sort_arrivals();
  bool is_due(notification_lane& lane);
  /// Delivers due notifications of a lane; returns whether there were any. An empty lane may be
  /// destroyed afterwards.
  bool deliver(notification_lane& lane, bool& is_empty);
  /// Waits for new entries, at most this long.
  void rest(duration longest);

  int device_;
  std::chrono::microseconds interval_;
  cuda::event_pool& events_;
  device_health& health_;
  std::vector<notification_lane*> busy_;
  std::vector<arrival> arrived_;
  std::mutex mutex_;
  std::condition_variable changed_;    // For the poller: new entries.
  std::condition_variable delivered_;  // For threads closing a lane.
  std::vector<arrival> new_;
  std::atomic<bool> has_new_{false};
  bool is_resting_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cohort::runtime::detail
