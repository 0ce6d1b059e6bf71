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

const char* name_of(llama::device_work what) noexcept {
  return what == llama::device_work::iteration ? "an iteration" : "a prefill";
}

}  // namespace

device_watchdog::device_watchdog(const watch_options& o, chat_metrics& counters,
                                 hang_listener& listener)
    : counters_{counters}, listener_{listener}, watch_{o} {
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
    const time_point now = clock_.now();
    const auto hangs = watch_.look(now);
    if (hangs) {
      fmt::print(stderr, "llm_server: device {}: quarantined: {} hangs\n", the_device,
                 name_of(*hangs));
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
    const auto hopeless = watch_.take_hopeless(now);
    if (hopeless) {
      fmt::print(stderr, "llm_server: device {}: {} still hangs: its texts end\n", the_device,
                 name_of(*hopeless));
    }
    if (hangs || hopeless) {
      asleep_until_ = distant_past;  // It looks again before it sleeps.
      lock.unlock();
      if (hangs) listener_.hangs();
      if (hopeless) listener_.stays_away(*hopeless);
      lock.lock();
      continue;
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
