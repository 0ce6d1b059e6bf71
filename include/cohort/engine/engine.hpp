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

/// Serves requests on a thread of its own. Any thread submits and cancels; outcomes leave through
/// the completion context. One thread, one clock reading a turn, no allocation for a request once
/// warm. Destroying it drains it: every accepted request gets its outcome first, however long a
/// device keeps it. Who must not wait so long asks `drain_for` before. What is said to happen on
/// the loop's thread happens on the caller's once that has ended, drained: one thread at a time.
///
/// @tparam Core `serving_core`: which scheduler, and who observes it.
/// @tparam Backend `backend`: runs batches; outlives the engine.
/// @tparam Context `completion_context`: receives outcomes.
template <class Core, class Backend, class Context>
class basic_engine {
  // Asserted, not required: of a requirement that fails while the arguments are deduced, compilers
  // say little but that there is no such constructor.
  static_assert(serving_core<Core>);
  static_assert(backend<Backend>);
  static_assert(completion_context<Context>);

 public:
  /// Starts the thread. Then tell the backend where to report ends (`backend.bind(engine)`).
  basic_engine(Core core, Backend& runner, Context context, loop_options options = {})
      : loop_{std::move(core), runner, std::move(context), options}, thread_{[this] { run(); }} {}
  ~basic_engine() {
    drain();
    join();
  }
  basic_engine(const basic_engine&) = delete;
  basic_engine& operator=(const basic_engine&) = delete;

  /// As `basic_loop::submit`, at the present time.
  [[nodiscard]] std::optional<refusal> submit(request& r) noexcept {
    return loop_.submit(r, clock_.now());
  }
  /// The same for who has several requests at one time: none may run until `wake_up`, which is to
  /// follow soon. So the engine's thread is woken once for all, and they may share a batch.
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

  /// Adds a model while running; waits for the loop to have done it. Not from a handler.
  /// @param setup `setup(model_id)` is called on the loop's thread before the first request: tell
  ///              the backend there, which belongs to that thread.
  /// @throws config_error As `basic_loop::add_model`; and what `setup` throws, as it is: then the
  /// model is gone again, and its id may be the next one's.
  /// @param where As for the core.
  template <class Setup, class... Where>
  model_id add_model(const model_config& config, Setup setup, Where... where) {
    return ask<model_id>(
        [&](time_point now) { return loop_.set_up_model(now, setup, config, where...); });
  }
  /// Removes a model when its accepted requests have ended; then calls `gone` on the loop's thread.
  /// What that throws is counted (`basic_loop::failed_callbacks`), and nobody else hears of it.
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

  /// Runs `action()` on the loop's thread and waits for it: for what only that thread may do with
  /// the backend. Not from a handler. Throws what it throws.
  template <class F>
  void run_inside(F action) {
    ask<bool>([&](time_point) {
      action();
      return true;
    });
  }

  /// Has `look(loop)` see the loop, and its core, on the loop's thread, and waits for it. Not from
  /// a handler. Throws what it throws.
  template <class F>
  void inspect(F look) {
    ask<bool>([&](time_point) {
      look(std::as_const(loop_));
      return true;
    });
  }

  /// Takes no more requests; those accepted go on to their ends.
  void drain() noexcept { loop_.drain(); }
  /// As `drain`, and waits for the last request to end, but no longer than `limit`; 0: looks. If it
  /// has ended this is as after `join`, else the engine goes on with what is left: its requests may
  /// be cancelled, and it may be asked again. Not from a handler; one thread at a time.
  /// @returns What is left. Where requests are, destroying the engine waits for them; where devices
  /// hang, destroying the backend does.
  drain_report drain_for(duration limit) {
    drain();
    // The machine's clock cannot be asked to wait for centuries.
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
  /// Waits until it is drained and the last request has ended. Not from a handler.
  void join() {
    if (!thread_.joinable()) return;
    thread_.join();
    loop_.unbind();
  }

  [[nodiscard]] bool is_accepting(model_id id) const noexcept { return loop_.is_accepting(id); }
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept { return loop_.waiting(id); }
  [[nodiscard]] bool has_device(model_id id) const noexcept { return loop_.has_device(id); }
  /// How late the loop's timers fired so far: a copy taken by the loop.
  [[nodiscard]] wake_histogram wake_delays() {
    return ask<wake_histogram>([this](time_point) { return delays_; });
  }

 private:
  void post(inbox::control action) {
    if (!loop_.post(std::move(action))) return;
    // No thread is left that would. Who is refused the flag leaves it to who has it, who looks
    // again after giving it back.
    while (loop_.mail().has_messages() && !stands_in_.test_and_set()) {
      loop_.turn(clock_.now());
      stands_in_.clear();
    }
  }

  /// Has the loop's thread run `action(now)` and waits for its answer, or throws what it threw.
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
  bool has_ended_ = false;                         // The thread's last word; guarded by the lock.
  std::atomic_flag stands_in_ = ATOMIC_FLAG_INIT;  // Somebody does what it would.
  std::thread thread_;
};

}  // namespace cohort::engine
