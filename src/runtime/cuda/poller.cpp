// SPDX-License-Identifier: Apache-2.0
#include "poller.hpp"

#include <cohort/runtime/cuda/error.hpp>

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

namespace cohort::runtime::detail {

void device_health::note(cudaError_t e, const char* call) noexcept {
  if (!cuda::is_sticky(e)) return;
  try {
    const std::lock_guard lock{mutex_};
    if (failure_.empty()) failure_ = cuda::describe(e, call);
  } catch (...) {  // NOLINT(bugprone-empty-catch): without memory for the text, the fact must do.
  }
  good_.store(false, std::memory_order_release);
}
std::string device_health::failure() const {
  const std::lock_guard lock{mutex_};
  return failure_;
}

poller::poller(int device, std::chrono::microseconds interval, cuda::event_pool& events,
               device_health& health)
    : device_{device}, interval_{interval}, events_{events}, health_{health} {
  thread_ = std::thread{[this] { run(); }};
}
poller::~poller() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void poller::open(notification_lane& lane) {
  const std::lock_guard lock{mutex_};
  lanes_.push_back(&lane);
}
void poller::close(notification_lane& lane) {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return lane.is_empty() && !lane.is_delivering; });
  std::erase(lanes_, &lane);
}
void poller::push(notification_lane& lane, notification_lane::entry e) {
  bool was_idle = false;
  {
    const std::lock_guard lock{mutex_};
    lane.push(std::move(e));
    was_idle = outstanding_++ == 0;
  }
  if (was_idle) changed_.notify_all();
}

bool poller::deliver(std::unique_lock<std::mutex>& lock) {
  bool any = false;
  // By index: a lane may be opened while the lock is given up, and closed only when it is empty.
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    notification_lane& lane = *lanes_[i];
    while (!lane.is_empty()) {
      if (lane.front().behind) {
        // Without the lock, which `push` needs. Only this thread takes from a lane, and one with an
        // entry is not closed; but its ring may grow meanwhile.
        const cuda::event_view behind = lane.front().behind.view();
        lock.unlock();
        const cudaError_t e = behind.query();
        lock.lock();
        health_.note(e, "cudaEventQuery");
        // Work that may still run is told as over only if the device is lost.
        if (e != cudaSuccess && health_.is_good()) break;
        lane.front().failed = lane.front().failed || !health_.is_good();
      }
      notification_lane::entry due = lane.pop();
      lane.is_delivering = true;
      lock.unlock();
      events_.give_back(std::move(due.behind));
      due.done->invoke(*due.done, due.failed);
      lock.lock();
      lane.is_delivering = false;
      --outstanding_;
      any = true;
      if (lane.is_empty()) {
        changed_.notify_all();  // Who closes it may wait. The list of lanes may change from here.
        break;
      }
    }
  }
  return any;
}

void poller::run() {
  using clock = std::chrono::steady_clock;
  (void)cudaSetDevice(device_);
  // Queries would else end the captures of other threads.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  // Else each sleep takes 50 us more than it says.
  (void)prctl(PR_SET_TIMERSLACK, 1UL);
  // Stages follow each other within some ten microseconds: a look without sleep finds the next one.
  constexpr std::chrono::microseconds awake{50};
  clock::time_point last = clock::now();
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return outstanding_ > 0 || stopping_; });
    if (outstanding_ == 0) return;
    if (deliver(lock)) {
      last = clock::now();
      continue;
    }
    lock.unlock();
    if (interval_.count() > 0 && clock::now() - last > awake) {
      std::this_thread::sleep_for(interval_);
    } else {
      std::this_thread::yield();
    }
    lock.lock();
  }
}

}  // namespace cohort::runtime::detail
