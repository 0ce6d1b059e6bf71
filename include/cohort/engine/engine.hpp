// SPDX-License-Identifier: Apache-2.0
/// @file
/// The real-time engine: a loop, its thread and the machine's clock.
#pragma once

#include <cohort/core/clock.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/request_life.hpp>
#include <cohort/engine/serving_core.hpp>
#include <cohort/engine/wake_histogram.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace cohort::engine {

/// Serves requests on its own thread. Any thread submits and cancels; outcomes leave through the
/// completion context. One thread, one clock reading a turn, no allocation for a request once warm.
/// The destructor drains: every accepted request gets its outcome first, however long a device
/// takes. Call `drain_for` first if shutdown must be bounded. After the loop's thread has ended,
/// drained, its work is done on the caller's thread: one thread at a time.
///
/// @tparam Core `serving_core`: the scheduler and its observer.
/// @tparam Backend `backend`: runs batches; must outlive the engine.
/// @tparam Context `completion_context`: receives outcomes.
template <class Core, class Backend, class Context>
class basic_engine {
  // Asserted, not required: if a requirement fails during argument deduction, compilers only report
  // that there is no such constructor.
  static_assert(serving_core<Core>);
  static_assert(backend<Backend>);
  static_assert(completion_context<Context>);

 public:
  /// Starts the thread. Afterwards bind the backend's reports to the engine
  /// (`backend.bind(engine)`).
  basic_engine(Core core, Backend& runner, Context context, loop_options options = {})
      : loop_{std::move(core), runner, std::move(context), options}, thread_{[this] { run(); }} {}
  ~basic_engine() {
    drain();
    join();
  }
  basic_engine(const basic_engine&) = delete;
  basic_engine& operator=(const basic_engine&) = delete;

  /// Like `basic_loop::submit`, at the present time.
  [[nodiscard]] std::optional<refusal> submit(request& r) noexcept {
    return loop_.submit(r, clock_.now());
  }
  /// Like `submit`, for several requests at one time: none may run until `wake_up`, which must
  /// follow soon. The engine's thread is then woken once, and the requests may share a batch.
  [[nodiscard]] std::optional<refusal> submit_quietly(request& r) noexcept {
    return loop_.submit(r, clock_.now(), false);
  }
  void wake_up() noexcept { loop_.wake_up(); }
  void cancel(request& r) { loop_.cancel(r); }
  void complete(batch_ticket at, bool failed) { loop_.complete(at, failed); }
  void complete_request(batch_ticket at, const request& r, bool failed) {
    loop_.complete_request(at, r, failed);
  }
  void complete_probe(device_id d, bool failed) { loop_.complete_probe(d, failed); }
  template <class F>
  void nudge(F&& publish) noexcept {
    loop_.nudge(std::forward<F>(publish));
  }

  /// Adds a model while running; waits until the loop has done it. Not from a handler.
  /// @param setup `setup(model_id)` is called on the loop's thread before the first request: add
  /// the model to the backend there.
  /// @throws config_error As `basic_loop::add_model`. Exceptions of `setup` pass through; the model
  /// is then removed, and its id may be reused.
  /// @param where As for the core.
  template <class Setup, class... Where>
  model_id add_model(const model_config& config, Setup setup, Where... where) {
    return ask<model_id>(
        [&](time_point now) { return loop_.set_up_model(now, setup, config, where...); });
  }
  /// Removes a model when its accepted requests have ended; then calls `gone` on the loop's thread.
  /// Its exceptions are counted (`basic_loop::failed_callbacks`) and discarded.
  void remove_model(model_id id, std::function<void()> gone = {}) {
    post([this, id, gone = std::move(gone)](time_point now) { loop_.remove_model(id, now, gone); });
  }
  /// Adds a device while running. @param setup As for `add_model`, with the device's id.
  /// @throws config_error As `add_model`.  @param where As for the core: its capacity.
  template <class Setup, class... Where>
  device_id add_device(Setup setup, Where... where) {
    return ask<device_id>(
        [&](time_point now) { return loop_.set_up_device(now, setup, where...); });
  }
  void remove_device(device_id d) {
    post([this, d](time_point now) { loop_.remove_device(d, now); });
  }

  /// Runs `action()` on the loop's thread and waits for it: for calls of the backend that only that
  /// thread may make. Not from a handler. Its exceptions pass through.
  template <class F>
  void run_inside(F action) {
    ask<bool>([&](time_point) {
      action();
      return true;
    });
  }

  /// Calls `look(loop)` on the loop's thread, to inspect the loop and its core, and waits for it.
  /// Not from a handler. Its exceptions pass through.
  template <class F>
  void inspect(F look) {
    ask<bool>([&](time_point) {
      look(std::as_const(loop_));
      return true;
    });
  }

  /// Accepts no more requests; accepted ones continue to their ends.
  void drain() noexcept { loop_.drain(); }
  /// Like `drain`, and waits until the last request ends, at most `limit`; 0: returns at once. If
  /// it has ended the state is as after `join`; otherwise the engine continues with the remaining
  /// requests, which may be cancelled, and this may be called again. Not from a handler; one thread
  /// at a time.
  /// @returns What remains. While requests remain, the engine's destructor waits for them; while
  /// devices hang, the backend's does.
  drain_report drain_for(duration limit) {
    drain();
    // The machine's clock cannot wait for centuries.
    constexpr duration most = std::chrono::hours{24 * 365};
    bool has_ended = false;
    {
      std::unique_lock lock{end_mutex_};
      const auto is_over = [this] { return has_ended_; };
      has_ended = end_.wait_for(lock, std::min(limit, most), is_over);
    }
    if (has_ended) join();
    return loop_.left();
  }
  /// Drains and waits until the last request has ended. Not from a handler.
  void join() {
    if (!thread_.joinable()) return;
    thread_.join();
    loop_.unbind();
  }

  [[nodiscard]] bool is_accepting(model_id id) const noexcept { return loop_.is_accepting(id); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept { return loop_.waiting(id); }
  [[nodiscard]] bool has_device(model_id id) const noexcept { return loop_.has_device(id); }
  /// A copy of how late the loop's timers have fired, made on the loop's thread.
  [[nodiscard]] wake_histogram wake_delays() {
    return ask<wake_histogram>([this](time_point) { return delays_; });
  }

 private:
  void post(inbox::control action) {
    if (!loop_.post(std::move(action))) return;
    // No thread of the loop is left. If another thread holds the flag, it will check again after
    // releasing it.
    while (loop_.mail().has_messages() && !stands_in_.test_and_set()) {
      loop_.turn(clock_.now());
      stands_in_.clear();
    }
  }

  /// Runs `action(now)` on the loop's thread and returns its result or rethrows its exception.
  template <class T, class F>
  T ask(F action) {
    struct {
      std::mutex mutex;
      std::condition_variable done;
      std::optional<T> value;
      std::exception_ptr thrown;
    } answer;
    post([&](time_point now) {
      std::optional<T> value;
      std::exception_ptr thrown;
      try {
        value.emplace(action(now));
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock{answer.mutex};
      answer.value = std::move(value);
      answer.thrown = std::move(thrown);
      answer.done.notify_one();
    });
    std::unique_lock lock{answer.mutex};
    answer.done.wait(lock, [&] { return answer.value || answer.thrown; });
    if (answer.thrown) std::rethrow_exception(std::move(answer.thrown));
    return std::move(*answer.value);
  }

  void run() {
    set_precise_sleep();
    time_point now = clock_.now();
    time_point next = loop_.turn(now);
    while (!loop_.is_finished() || !loop_.mail().end()) {
      const bool by_timer = loop_.mail().sleep_until(next, loop_.doze_until(now, next));
      now = clock_.now();
      if (by_timer) delays_.add(now - next);
      next = loop_.turn(now);
    }
    const std::lock_guard lock{end_mutex_};
    has_ended_ = true;
    end_.notify_all();
  }

  steady_clock clock_;
  wake_histogram delays_;
  basic_loop<Core, Backend, Context> loop_;
  std::mutex end_mutex_;
  std::condition_variable end_;
  bool has_ended_ = false;                         // The thread is done; guarded by the lock.
  std::atomic_flag stands_in_ = ATOMIC_FLAG_INIT;  // A caller acts for the thread.
  std::thread thread_;
};

}  // namespace cohort::engine
