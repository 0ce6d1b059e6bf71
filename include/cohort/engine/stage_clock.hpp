// SPDX-License-Identifier: Apache-2.0
/// @file
/// Times of work on streams, for measurements: `stage_clock` and `finish`. They use the machine's
/// clock, or the executor's if it is driven by time. For measurements only: decisions take `now`
/// from their caller.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>
#include <cohort/runtime/executor.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

namespace cohort::engine {

namespace detail {

/// The present time of an executor's work.
template <runtime::executor Executor>
[[nodiscard]] time_point present(const Executor& e) {
  if constexpr (runtime::driven_executor<Executor>) {
    return e.now();
  } else {
    return steady_clock{}.now();
  }
}

/// A completion to wait for.
template <class Executor>
struct awaited : runtime::completion {
  explicit awaited(const Executor& e) : executor{&e} { invoke = &tell; }

  static void tell(runtime::completion& self, bool failed) noexcept {
    auto& d = static_cast<awaited&>(self);
    const time_point now = present(*d.executor);
    // Under the lock: the waiter destroys this as soon as it can take the lock.
    const std::lock_guard lock{d.mutex};
    d.at = now;
    d.failed = failed;
    if (failed && d.error != nullptr) d.why = d.error;
    d.over = true;
    d.changed.notify_one();
  }

  const Executor* executor;
  std::mutex mutex;
  std::condition_variable changed;
  time_point at{};
  std::string why;
  bool failed = false;
  bool over = false;
};

}  // namespace detail

/// Waits until the work on a stream has ended, and returns when it did. A driven executor is
/// advanced from event to event meanwhile, with all its streams.
/// @throws device_error If the work failed, with the executor's text; or if it can never end.
template <runtime::executor Executor>
time_point finish(Executor& e, typename Executor::stream& s) {
  detail::awaited<Executor> a{e};
  e.notify(s, a);
  if constexpr (runtime::driven_executor<Executor>) {
    while (!a.over) {
      if (e.next_event() == never) throw device_error{"measure: the work never ends"};
      e.advance(e.next_event());
    }
  } else {
    std::unique_lock lock{a.mutex};
    a.changed.wait(lock, [&a] { return a.over; });
  }
  if (a.failed) {
    throw device_error{"measure: the work failed" + (a.why.empty() ? a.why : ": " + a.why)};
  }
  return a.at;
}

/// Records when a stream reached each of a number of marks; reusable, by one stream at a time. This
/// version is for executors that launch host work; specialise it for others:
/// * `stage_clock(executor, marks)`; neither moves while a stream has marks to reach.
/// * `mark(stream, i)` for 0 to `marks` − 1, in this order.
/// * `between(i, j)`, once the stream has reached both: a duration.
/// * `busy()`, only if it can be known: how long the stream's thread computed from the first mark
///   to the last, without other threads on its core.
template <class Executor>
class stage_clock;

template <runtime::launching_executor Executor>
class stage_clock<Executor> {
 public:
  stage_clock(Executor& e, std::size_t marks) : executor_{e}, at_(marks) {}
  stage_clock(const stage_clock&) = delete;
  stage_clock& operator=(const stage_clock&) = delete;

  void mark(typename Executor::stream& s, std::size_t i) {
    executor_.launch(s, [this, i]() noexcept {
      if (i == 0) first_busy_ = thread_time();
      at_[i] = detail::present(executor_);
      if (i + 1 == at_.size()) last_busy_ = thread_time();
    });
  }
  [[nodiscard]] duration between(std::size_t i, std::size_t j) const { return at_[j] - at_[i]; }
  /// Measured around the marks, so that it covers the work between them.
  [[nodiscard]] duration busy() const
    requires(Executor::streams_are_threads)
  {
    return last_busy_ - first_busy_;
  }

 private:
  static duration thread_time() noexcept {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
  }

  Executor& executor_;
  std::vector<time_point> at_;
  duration first_busy_{0};
  duration last_busy_{0};
};

}  // namespace cohort::engine
