// SPDX-License-Identifier: Apache-2.0
#include "poller.hpp"

#include <cohort/core/clock.hpp>
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
  changed_.notify_one();
  thread_.join();
}

void poller::push(notification_lane& lane, notification_lane::entry e) {
  lane.outstanding.fetch_add(1, std::memory_order_relaxed);
  bool wakes = false;
  {
    const std::lock_guard lock{mutex_};
    new_.push_back({&lane, std::move(e)});
    has_new_.store(true, std::memory_order_relaxed);
    wakes = is_resting_;
  }
  if (wakes) changed_.notify_one();
}
void poller::close(notification_lane& lane) {
  std::unique_lock lock{mutex_};
  delivered_.wait(lock, [&] { return lane.outstanding.load(std::memory_order_acquire) == 0; });
}

void poller::sort_arrivals() {
  if (!has_new_.load(std::memory_order_relaxed)) return;
  {
    const std::lock_guard lock{mutex_};
    arrived_.swap(new_);
    has_new_.store(false, std::memory_order_relaxed);
  }
  const time_point now = steady_clock{}.now();
  for (arrival& a : arrived_) {
    if (a.lane->is_empty()) {
      busy_.push_back(a.lane);
      a.lane->pace.begin(now);
    }
    a.lane->push(std::move(a.what));
  }
  arrived_.clear();
}

bool poller::is_due(notification_lane& lane) {
  const notification_lane::entry& first = lane.front();
  cudaError_t e = cudaSuccess;
  if (first.behind) {
    e = first.behind.view().query();
    health_.note(e, "cudaEventQuery");
  } else if (first.when_idle) {
    const std::lock_guard lock{lane.stream_mutex};
    e = cudaStreamQuery(lane.stream);
    if (e != cudaSuccess) (void)cudaGetLastError();
    health_.note(e, "cudaStreamQuery");
  }
  // Work that may still run counts as over only if the device is lost.
  return e == cudaSuccess || !health_.is_good();
}

bool poller::deliver(notification_lane& lane, bool& is_empty) {
  bool any = false;
  while (!is_empty && is_due(lane)) {
    any = true;
    const time_point now = steady_clock{}.now();
    lane.pace.end(now);
    lane.pace.begin(now);
    notification_lane::entry due = lane.pop();
    is_empty = lane.is_empty();
    events_.give_back(std::move(due.behind));
    due.done->invoke(*due.done, due.failed || !health_.is_good());
    if (lane.outstanding.fetch_sub(1, std::memory_order_release) > 1) continue;
    // The thread closing the lane may have seen that, and destroyed it.
    const std::lock_guard lock{mutex_};
    delivered_.notify_all();
    return true;
  }
  return any;
}

void poller::rest(duration longest) {
  std::unique_lock lock{mutex_};
  is_resting_ = true;
  const auto wakes = [this] { return !new_.empty() || stopping_; };
  if (longest == duration::max()) {
    changed_.wait(lock, wakes);
  } else {
    changed_.wait_for(lock, longest, wakes);
  }
  is_resting_ = false;
}

void poller::run() {
  (void)cudaSetDevice(device_);
  // Otherwise queries would end the captures of other threads.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  // Otherwise each sleep takes 50 us longer.
  (void)prctl(PR_SET_TIMERSLACK, 1UL);
  // Stages follow each other within some ten microseconds: polling without sleep finds the next
  // one.
  constexpr std::chrono::microseconds awake{50};
  time_point last = steady_clock{}.now();
  for (;;) {
    sort_arrivals();
    if (busy_.empty()) {
      rest(duration::max());
      const std::lock_guard lock{mutex_};
      if (new_.empty()) return;  // And stopping.
      continue;
    }
    bool any = false;
    duration pause = duration::max();
    std::erase_if(busy_, [&](notification_lane* lane) {
      bool is_empty = false;
      if (deliver(*lane, is_empty)) any = true;
      if (!is_empty) pause = std::min(pause, lane->pace.pause(steady_clock{}.now()));
      return is_empty;
    });
    if (any) {
      last = steady_clock{}.now();
    } else if (pause >= look_pace::shortest) {
      rest(pause);
    } else if (interval_.count() > 0 && steady_clock{}.now() - last > awake) {
      std::this_thread::sleep_for(interval_);
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace cohort::runtime::detail
