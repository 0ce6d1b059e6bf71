// SPDX-License-Identifier: Apache-2.0
#include "device_watchdog.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace cohort::chat {
namespace {

using engine::device_state;

/// A generator has one, whichever of the machine's it is.
constexpr const char* the_device = "0";

}  // namespace

device_watchdog::device_watchdog(const engine::health_options& o, chat_metrics& counters)
    : counters_{counters}, watch_{o} {
  show();
  thread_ = std::thread{[this] { run(); }};
}

device_watchdog::~device_watchdog() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void device_watchdog::sent(llama::device_work what, time_point now,
                           std::optional<duration> expected) noexcept {
  const std::lock_guard lock{mutex_};
  watch_.sent(what, now, expected);
  wake_if_due();
}

void device_watchdog::returned(llama::device_work what, time_point now) noexcept {
  const std::lock_guard lock{mutex_};
  watch_.returned(what, now);
  wake_if_due();
}

/// Not at each iteration: what is due later than the thread wakes anyway can wait until then.
void device_watchdog::wake_if_due() {
  if (watch_.next() < asleep_until_ || watch_.state() != shown_) wake_.notify_one();
}

void device_watchdog::show() {
  for (const device_state s :
       {device_state::healthy, device_state::suspect, device_state::quarantined}) {
    counters_.device_state.set({{"device", the_device}, {"state", std::string{to_string(s)}}},
                               s == watch_.state() ? 1 : 0);
  }
  shown_ = watch_.state();
}

void device_watchdog::run() {
  std::unique_lock lock{mutex_};
  while (!stopping_) {
    const auto hangs = watch_.look(clock_.now());
    if (hangs) {
      fmt::print(stderr, "llm_server: device {}: quarantined: {} hangs\n", the_device,
                 hangs == llama::device_work::iteration ? "an iteration" : "a prefill");
    }
    if (watch_.state() != shown_) {
      const bool is_out = watch_.state() == device_state::quarantined;
      if (is_out != is_out_) {
        if (!is_out) fmt::print(stderr, "llm_server: device {}: healthy: it goes on\n", the_device);
        counters_.device_changes.add(std::string{to_string(watch_.state())});
        is_out_ = is_out;
      }
      show();
    }
    asleep_until_ = watch_.next();
    if (asleep_until_ == never) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, std::chrono::steady_clock::time_point{
                                 std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                     asleep_until_.time_since_epoch())});
    }
  }
}

}  // namespace cohort::chat
