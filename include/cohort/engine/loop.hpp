// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engine's loop without its thread: inbox, admission, core and backend, driven by the caller.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/doze.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/inbox.hpp>
#include <cohort/engine/model_door.hpp>
#include <cohort/engine/request_life.hpp>
#include <cohort/engine/serving_core.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Limits of a loop.
struct loop_options {
  std::uint32_t max_models = 256;  ///< Models at one time; at least 1.
};

/// Joins an engine core with the threads around it. `turn(now)` does everything that is due and
/// returns when it must be called again; the calling thread is the loop's thread: of `basic_engine`
/// in real time, otherwise of a test or the user's own event loop. Thread safety: `submit`,
/// `wake_up`, `cancel`, `complete`, `post`, `drain`, `left` and `is_accepting` from any thread; the
/// rest from the loop's thread.
template <serving_core Core, backend Backend, completion_context Context>
class basic_loop {
 public:
  /// @param runner Must outlive the loop.
  /// @throws config_error If an option is outside its range.
  basic_loop(Core core, Backend& runner, Context context, loop_options options = {})
      : core_{std::move(core)},
        backend_{runner},
        context_{std::move(context)},
        doors_{options.max_models},
        doze_{options.max_models} {
    if constexpr (queueing_backend<Backend> && requires { core_.send_ahead(true); })
      core_.send_ahead(true);
  }
  basic_loop(const basic_loop&) = delete;
  basic_loop& operator=(const basic_loop&) = delete;
  ~basic_loop() { unbind(); }
  /// Stops the backend's reports, though a device may later end abandoned work. Afterwards the
  /// backend may be destroyed. Call it when the loop has finished.
  void unbind() noexcept {
    if (std::exchange(is_unbound_, true)) return;
    if constexpr (requires { backend_.unbind(); }) backend_.unbind();
  }

  /// Accepts a request, or returns at once why not; then it is unchanged and the caller's. Does not
  /// block. An accepted request gets exactly one outcome.
  /// @param wakes If false, a sleeping loop may sleep on until `wake_up`.
  [[nodiscard]] std::optional<refusal> submit(request& r, time_point now,
                                              bool wakes = true) noexcept {
    if (const std::optional<refusal> why = doors_.enter(r, now)) {
      return why == refusal::unknown_model && inbox_.is_closed() ? refusal::draining : why;
    }
    if (!inbox_.post_arrival(r, wakes, judge())) {
      doors_.leave(r.model);
      return refusal::draining;
    }
    return std::nullopt;
  }

  /// Wakes the loop for requests that were submitted without waking it.
  void wake_up() noexcept { inbox_.wake_up(); }

  /// Cancels an accepted request: a waiting one ends `cancelled` soon, one in a batch when its
  /// batch does. No effect if it has ended, so this may race with its outcome as long as its memory
  /// exists. If completion and cancellation tie, completion wins.
  void cancel(request& r) { inbox_.post_cancel(r); }

  /// Reports the end of a batch. For backends.
  void complete(batch_ticket at, bool failed) { inbox_.post_end({at, failed}); }

  /// Reports the end of a probe of a device. For backends.
  void complete_probe(device_id d, bool failed) { inbox_.post_probe_end({d, failed}); }

  /// Reports the end of one request before its batch. For backends.
  void complete_request(batch_ticket at, const request& r, bool failed) {
    inbox_.post_end({at, failed, &r});
  }
  /// Like `inbox::nudge`: for backends that the loop drives and other threads feed.
  template <class F>
  void nudge(F&& publish) noexcept {
    inbox_.nudge(std::forward<F>(publish));
  }

  /// Runs `action(now)` on the loop's thread. Its exceptions are counted and discarded.
  /// @returns As `inbox::post_control`.
  bool post(inbox::control action) { return inbox_.post_control(std::move(action)); }

  /// Accepts no more requests; accepted ones continue to their ends.
  void drain() noexcept { inbox_.close(); }
  /// Requests that a drain would wait for, and devices that hung at the end of the last turn.
  [[nodiscard]] drain_report left() noexcept {
    return {inbox_.in_engine(), hanging_.load(std::memory_order_relaxed)};
  }

  [[nodiscard]] bool is_accepting(model_id id) const noexcept { return doors_.is_accepting(id); }
  /// Number of the model's requests that wait for a batch: a snapshot.
  [[nodiscard]] std::uint32_t waiting(model_id id) const noexcept { return doors_.waiting(id); }
  /// Whether a device that may run the model is in service: a snapshot. Valid for a model being
  /// removed, until it is gone.
  [[nodiscard]] bool has_device(model_id id) const noexcept { return doors_.has_device(id); }

  /// Adds a model; the backend must know it before its first request. Loop's thread.
  /// @throws config_error As the core does, and above `max_models`.
  /// @param where As for the core.
  template <class... Where>
  model_id add_model(const model_config& config, Where... where) {
    doors_.expect_room();
    const model_id id = core_.add_model(config, where...);
    doors_.open(id, config.scheduling.queue_capacity, config.max_request_size,
                config.scheduling.slo, core_.has_device(id), core_.scheduler().models());
    return id;
  }
  /// As above, then calls `setup(id)`, which tells the backend. If that throws, the model and its
  /// id are removed again.
  template <class Setup, class... Where>
  model_id set_up_model(time_point now, Setup& setup, const model_config& config, Where... where) {
    const model_id id = add_model(config, where...);
    try {
      setup(id);
    } catch (...) {
      remove_model(id, now);
      throw;
    }
    return id;
  }
  /// Removes a model when its accepted requests have ended; then calls `gone`, if given. Its
  /// exceptions are counted and discarded.
  void remove_model(model_id id, time_point now, std::function<void()> gone = {}) {
    if (!is_accepting(id)) return;
    doors_.close(id, std::move(gone));
    core_.remove_model(id, now, *this);
  }
  /// Adds a device; the backend must know it before the next turn. Loop's thread.
  /// @throws config_error As the core does.  @param where As for the core.
  template <class... Where>
  device_id add_device(time_point now, Where... where) {
    const device_id added = core_.add_device(now, where...);
    doors_.set_least_times(core_.scheduler().models());  // Batches may now share devices.
    tell_of_devices();
    return added;
  }
  /// Like `set_up_model`, for a device.
  template <class Setup, class... Where>
  device_id set_up_device(time_point now, Setup& setup, Where... where) {
    const device_id d = add_device(now, where...);
    try {
      setup(d);
    } catch (...) {
      remove_device(d, now);
      throw;
    }
    return d;
  }
  void remove_device(device_id d, time_point now) noexcept { core_.remove_device(d, now); }

  /// Does everything that is due. Arrivals come first, then ends of batches, then cancellations.
  /// @returns When it must be called next, if nothing is posted before.
  time_point turn(time_point now) {
    for (;;) {
      advance_backend(now);
      while (inbox_.take(taken_)) dispose(now);
      core_.advance(now, *this);
      advance_backend(now);
      tell_of_devices();
      tell_of_hangs();
      const time_point next = std::min(core_.next_wake(), backend_wake());
      if (next > now) return next;
    }
  }
  /// Before the loop sleeps until `next`, when it must turn: from now on arrivals that change
  /// nothing meanwhile do not wake it. `inbox::sleep_until`, or `rouse`, must follow before the
  /// next turn. @returns The limit for `inbox::sleep_until`; `distant_past`: all arrivals wake it.
  [[nodiscard]] time_point doze_until(time_point now, time_point next) noexcept {
    const time_point until = doze_.begin(core_.scheduler(), now, next);
    if (until != distant_past) inbox_.doze(judge());
    return until;
  }
  /// Whether it has been drained and the last request has ended.
  [[nodiscard]] bool is_finished() noexcept {
    return inbox_.is_closed() && core_.in_flight() == 0 && taken_.arrivals.empty();
  }

  [[nodiscard]] const Core& core() const noexcept { return core_; }
  /// Mean time from a request's `arrival` until the loop sees it, for requests that a device may
  /// take at once, over about the last 256.
  [[nodiscard]] duration arrival_delay() const noexcept {
    return duration{static_cast<duration::rep>(std::max(0.0, arrival_delay_))};
  }
  /// How often a `gone` callback or a posted action threw. Loop's thread.
  [[nodiscard]] std::uint64_t failed_callbacks() const noexcept { return failed_callbacks_; }
  [[nodiscard]] Context& context() noexcept { return context_; }
  [[nodiscard]] inbox& mail() noexcept { return inbox_; }

  // The core's `engine_sink`.
  void launch(const deferred::batch& b) noexcept {
    doors_.launched(b.model, b.size());
    for (const request& r : b.requests) r.is_waiting = false;
    try {
      backend_.launch(b);
    } catch (const std::exception& e) {
      launch_failed(b, e.what());
    } catch (...) {
      launch_failed(b, "launch threw what is not a std::exception");
    }
  }
  void ended(request& r, outcome how) noexcept {
    // The receiver may look for another place at once.
    if (how == outcome::failed) tell_of_devices();
    if (std::exchange(r.is_waiting, false)) doors_.leave(r.model);
    if (how == outcome::dropped || how == outcome::refused || how == outcome::failed) {
      doze_.note_lost(doors_.slo(r.model));
    }
    inbox_.forget(r, taken_);
    context_.deliver(r, how);
  }
  void cancel_running(request& r) noexcept {
    if constexpr (cancelling_backend<Backend>) backend_.cancel(r);
  }
  [[nodiscard]] bool abandon(const deferred::batch& b) noexcept
    requires abandoning_backend<Backend>
  {
    return backend_.abandon(b);
  }
  void waits_again(request& r) noexcept {
    r.is_waiting = true;
    doors_.wait_again(r.model);
  }
  void probe(device_id d, model_id with) noexcept
    requires probing_backend<Backend>
  {
    backend_.probe(d, with);
  }
  void abandon_probe(device_id d, model_id with) noexcept
    requires probe_abandoning_backend<Backend>
  {
    backend_.abandon_probe(d, with);
  }
  [[nodiscard]] runtime::thread_load load_of(device_id d) noexcept
    requires load_telling_backend<Backend>
  {
    return backend_.load_of(d);
  }
  void model_removed(model_id id) noexcept {
    if (const auto gone = doors_.removed(id)) call(gone);
  }

 private:
  /// Callbacks must not end the loop.
  template <class F, class... Args>
  void call(const F& f, Args... args) noexcept {
    try {
      f(args...);
    } catch (...) {
      ++failed_callbacks_;
    }
  }
  void launch_failed(const deferred::batch& b, std::string_view why) noexcept {
    if constexpr (requires { core_.watcher().launch_failed(b, why); }) {
      core_.watcher().launch_failed(b, why);
    }
    complete(b.at(), true);
  }

  [[nodiscard]] auto judge() noexcept {
    return [this](const request& r) noexcept {
      return is_refused_at_once(r.model) || doze_.matters(core_.scheduler(), r);
    };
  }
  /// Whether the core must see the model's arrivals, as it may refuse them.
  [[nodiscard]] bool is_refused_at_once(model_id id) const noexcept {
    if constexpr (requires { core_.health().options().hands_back; }) {
      if (!core_.is_accepting(id)) return true;
      return core_.health().options().hands_back && !core_.has_device(id);
    } else {
      return false;
    }
  }

  void dispose(time_point now) {
    while (!taken_.arrivals.empty()) {
      request& r = taken_.arrivals.front();
      taken_.arrivals.pop_front();
      r.is_waiting = true;
      if (taken_.slept_through > 0) {
        --taken_.slept_through;  // It was right not to wake the loop.
      } else {
        arrivals_timed_ = std::min(arrivals_timed_ + 1, 256.0);
        arrival_delay_ +=
            (static_cast<double>((now - r.arrival).count()) - arrival_delay_) / arrivals_timed_;
      }
      // The model may have been removed, or the deadline have become infeasible, in the meantime.
      if (const std::optional<refusal> why = core_.submit(r, now, *this)) {
        ended(r, outcome_of(*why));
      }
    }
    if (!taken_.any_but_arrivals()) return;
    for (const batch_end& e : taken_.ends) {
      if (e.only != nullptr) {
        core_.on_request_complete(e.at, *e.only, e.failed, now, *this);
      } else {
        core_.on_complete(e.at, e.failed, now, *this);
      }
    }
    taken_.ends.clear();
    for (const probe_end& e : taken_.probes) core_.on_probe(e.device, e.failed, now, *this);
    taken_.probes.clear();
    for (request*& slot : taken_.cancels) {
      if (request* r = std::exchange(slot, nullptr)) core_.cancel(*r, now, *this);
    }
    taken_.cancels.clear();
    for (const inbox::control& c : taken_.controls) call(c, now);
    taken_.controls.clear();
  }

  void tell_of_devices() noexcept {
    if (std::exchange(told_changes_, core_.service_changes()) == core_.service_changes()) return;
    doors_.set_devices(core_);
  }

  void tell_of_hangs() noexcept {
    if constexpr (requires { core_.health().hang_changes(); }) {
      const device_health& health = core_.health();
      if (std::exchange(told_hangs_, health.hang_changes()) == health.hang_changes()) return;
      hanging_.store(health.hanging_devices(), std::memory_order_relaxed);
    }
  }

  void advance_backend(time_point now) {
    if constexpr (driven_backend<Backend>) backend_.advance(now);
  }
  time_point backend_wake() {
    if constexpr (driven_backend<Backend>) {
      return backend_.next_event();
    } else {
      return never;
    }
  }

  Core core_;
  Backend& backend_;
  Context context_;
  model_doors doors_;
  inbox inbox_;
  inbox::messages taken_;
  std::uint64_t told_changes_ = 0;  // Last reported changes of devices in service.
  std::uint64_t told_hangs_ = 0;    // Last reported changes of hung devices.
  std::atomic<std::size_t> hanging_{0};
  bool is_unbound_ = false;
  std::uint64_t failed_callbacks_ = 0;
  double arrival_delay_ = 0;  // In nanoseconds.
  double arrivals_timed_ = 0;
  doze doze_;  // Under the inbox's lock, while the loop sleeps.
};

}  // namespace cohort::engine
