// SPDX-License-Identifier: Apache-2.0
#include "device_watchdog.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <serve/barrier.hpp>
#include <serve/log.hpp>
#include <string>
#include <utility>

namespace cohort::chat {
namespace {

using engine::device_state;

/// A generator has one, whichever of the machine's it is.
constexpr const char* the_device = "0";

const char* name_of(llama::device_work what) noexcept {
  return what == llama::device_work::iteration ? "an iteration" : "a prefill";
}
/// Logs a line. Without memory for it the metrics still have what it says.
template <class... Args>
void tell(serve::severity s, fmt::format_string<Args...> line, Args&&... args) noexcept {
  try {
    serve::log_line(s, fmt::format(line, std::forward<Args>(args)...));
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
  }
}

const char* names_of(llama::device_work what) noexcept {
  return what == llama::device_work::iteration ? "iterations" : "prefills";
}

}  // namespace

device_watchdog::device_watchdog(const watch_options& o, chat_metrics& counters,
                                 trouble_listener& listener)
    : counters_{counters}, listener_{listener}, watch_{o} {
  show();
  thread_ = std::thread{[this] {
    while (!serve::guarded("llm_server", "the watchdog", [this] { run(); })) continue;
  }};
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

void device_watchdog::failed(llama::device_work what, std::string_view why,
                             time_point now) noexcept {
  const std::lock_guard lock{mutex_};
  if (watch_.failed(what, now)) fails_ = what;
  tell_of_failure(what, why, now);
  wake_if_due();
}

void device_watchdog::tell_of_failure(llama::device_work what, std::string_view why,
                                      time_point now) {
  if (last_why_at_ != distant_past && last_why_ == why &&
      now - last_why_at_ < std::chrono::seconds{1})
    return;
  last_why_ = why;
  last_why_at_ = now;
  tell(serve::severity::warning, "device {}: {} failed{}{}", the_device, name_of(what),
       why.empty() ? "" : ": ", why);
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
    const auto hangs = watch_.look(
        now, [this](llama::device_work what) noexcept { return listener_.load_of(what); });
    const auto fails = std::exchange(fails_, std::nullopt);
    bool went_out = false;
    if (watch_.state() != shown_) {
      const bool is_out = watch_.state() == device_state::quarantined;
      if (is_out != (trouble_ != device_trouble::none)) {
        went_out = is_out;
        // It may be suspect again already, but it serves.
        counters_.device_changes.add(1, 0, is_out ? 0 : 1);
        trouble_ = !is_out ? device_trouble::none
                   : hangs ? device_trouble::hangs
                           : device_trouble::fails;
        if (!is_out) {
          tell(serve::severity::info, "device {}: healthy: it goes on", the_device);
        } else if (hangs) {
          tell(serve::severity::error, "device {}: quarantined: {} hangs", the_device,
               name_of(*hangs));
        } else if (fails) {
          tell(serve::severity::error, "device {}: quarantined: {} fail", the_device,
               names_of(*fails));
        }
      }
      show();
    }
    const auto hopeless = watch_.take_hopeless(now);
    if (hopeless) {
      tell(serve::severity::error, "device {}: {} still hangs: its sequences end", the_device,
           name_of(*hopeless));
    }
    if (went_out || hopeless) {
      asleep_until_ = distant_past;  // It looks again before it sleeps.
      lock.unlock();
      if (went_out) listener_.is_out();
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
