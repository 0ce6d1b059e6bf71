// SPDX-License-Identifier: Apache-2.0
/// @file
/// The life of requests around a scheduler: admission, batches at work, outcomes, cancellation,
/// drain. Still a value.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/trial_runner.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>
#include <cohort/engine/admission.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/device_half.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/device_pools.hpp>
#include <cohort/engine/early_refusal.hpp>
#include <cohort/engine/model_lives.hpp>
#include <cohort/engine/request_life.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace cohort::engine {

/// A scheduler with everything a request needs from submission to its one outcome. A value: it owns
/// no thread, reads no clock and launches nothing; simulator and real-time engine drive the same
/// code. It talks to an `engine_sink`. Devices that hang or fail get no work until a probe succeeds
/// (`device_health`). Requests of a failed batch wait for another batch if their model is
/// repeatable and time allows; otherwise they end `failed`. Requests of a hung batch end `failed`,
/// and those of a batch sent behind it are treated as if it had failed; both only if the sink can
/// make the device release their memory (`abandon`), after which its reports about them are
/// ignored. A model that takes several devices out of service is suspended for a while
/// (`model_costs`): its requests are refused. Requests of an overloaded model that could not be in
/// time are refused at once (`early_refusal`), if the scheduler is a `foreseeing_scheduler`. Cost:
/// that of the scheduler; allocates only in `add_*`. Thread safety: none.
template <deferred::batch_scheduler Scheduler, observer Observer = null_observer>
class basic_engine_core {
 public:
  /// @param response Delay from the end of a batch until deadlines are judged; at least 0.
  explicit basic_engine_core(Scheduler scheduler = Scheduler{}, duration response = duration{0},
                             Observer watcher = {}, const health_options& health = {},
                             const refusal_options& refusals = {})
      : scheduler_{std::move(scheduler)},
        response_{response},
        observer_{std::move(watcher)},
        devices_{health},
        admission_{refusals, response} {
    expects(response >= duration{0}, "engine_core: response must be at least 0");
    send_ahead(false);
  }

  /// Whether a device may get its next batch shortly before its running one ends, to hide late
  /// timers and slow messages. Off by default: a device then has at most one batch per entry, and
  /// an entry is idle at `launch`. Turn it on if devices queue a second batch; an entry then has
  /// two outstanding ends.
  void send_ahead(bool on) noexcept {
    if constexpr (requires { scheduler_.send_ahead(on); }) scheduler_.send_ahead(on);
  }

  /// Adds a model. Allocates. @throws config_error As `model_shard::add_model`.
  /// @param where Further arguments of the scheduler: for `pooled_scheduler`, the pool.
  template <class... Where>
  model_id add_model(const model_config& config, Where... where) {
    config.validate();
    const model_id id = scheduler_.add_model(config.scheduling, where...);
    devices_.add_pool(pool_among(where...));
    admission_.add_model(id, config.scheduling.slo, pool_among(where...));
    models_.add(id, {config.max_request_size, config.is_repeatable, pool_among(where...),
                     config.longest_run});
    devices_.add_model(id, config.counts_as);
    return id;
  }

  /// Removes a model: new requests are refused, accepted ones are served. Once devices have
  /// released its batches, including abandoned ones, and probes with it have ended, the sink's
  /// `model_removed` is called and the id may be reused.
  /// @returns Whether there was such a model.
  template <engine_sink Sink>
  bool remove_model(model_id id, time_point now, Sink& sink) noexcept {
    if (!models_.close(id)) return false;
    finish_removals(now, sink);
    return true;
  }

  /// Adds an idle device. Allocates. @throws config_error As the scheduler.
  /// @param where Further arguments of the scheduler: the device's capacity, default 1; for
  /// `pooled_scheduler` the pool before it.
  template <class... Where>
  device_id add_device(time_point now, Where... where) {
    const device_id d = scheduler_.add_device(now, where...);
    devices_.add_device(d, scheduler_.capacity(d), pool_among(where...));
    return d;
  }
  /// Gives a device no more work; its batches still complete.
  void remove_device(device_id d, time_point now) noexcept {
    devices_.remove_device(d, scheduler_, now);
  }

  /// Accepts a request, or returns why not; then it is still the caller's, unchanged except
  /// `retry_after`.
  template <engine_sink Sink>
  [[nodiscard]] std::optional<refusal> submit(request& r, time_point now, Sink& sink) noexcept {
    COHORT_ASSERT_USE(r.state == request_state::idle,
                      "submit: this request was submitted before and has not ended");
    if (const auto why = admission_.refuses(r, scheduler_, models_, devices_, now)) {
      observer_.refused(r, *why, now);
      return why;
    }
    r.cancel_requested = false;
    r.attempts = 0;
    r.is_unfit = false;
    r.is_spent = false;
    r.failed_on.reset();
    models_.begin_request(r.model);
    watch_.begin(r);
    forward<Sink> f{*this, now, sink};
    scheduler_.on_arrival(r, now, f);
    finish_removals(now, sink);
    return std::nullopt;
  }

  /// Cancels a request that was submitted and has not ended. A queued one ends `cancelled` during
  /// this call; one in a batch ends `cancelled` when its batch does.
  template <engine_sink Sink>
  void cancel(request& r, time_point now, Sink& sink) noexcept {
    if (r.state == request_state::idle || r.cancel_requested) return;
    COHORT_ASSERT_USE(watch_.has(r), "cancel: another engine has this request");
    r.cancel_requested = true;
    forward<Sink> f{*this, now, sink};
    if (scheduler_.on_cancel(r, now, f)) {
      end(r, outcome::cancelled, now, sink);
    } else if constexpr (requirement::sink_cancels_running<Sink>) {
      sink.cancel_running(r);  // Its batch may be able to release it.
    }
    finish_removals(now, sink);
  }

  /// Handles the end of a batch, `failed` if without results: its requests end or wait for another
  /// batch. Batches of an entry end in order. If a batch ended early because its launch threw, its
  /// requests end at once, and its place in the entry is free when the previous batch has ended.
  /// The end of a batch that is unknown or has already ended is only counted.
  /// @param at Without a number: the oldest of the entry.
  template <engine_sink Sink>
  void on_complete(batch_ticket at, bool failed, time_point now, Sink& sink) noexcept {
    on_devices(now, sink, [&](auto& o) { devices_.on_complete(at, failed, now, o); });
  }
  /// Handles a request that ended before its batch. O(requests before it there). If it is not there
  /// because its batch was abandoned, it is only counted.
  /// @param at Without a number: any batch of the entry.
  template <engine_sink Sink>
  void on_request_complete(batch_ticket at, const request& only, bool failed, time_point now,
                           Sink& sink) noexcept {
    on_devices(now, sink, [&](auto& o) { devices_.on_request_complete(at, only, failed, now, o); });
  }
  /// Handles the end of a probe that the sink started.
  template <engine_sink Sink>
  void on_probe(device_id d, bool failed, time_point now, Sink& sink) noexcept {
    on_devices(now, sink, [&](auto& o) { devices_.on_probe(d, failed, now, o); });
  }

  /// Does everything that is due at `now`.
  template <engine_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    if (devices_.next_wake() <= now) {
      on_devices(now, sink, [&](auto& o) { devices_.advance(now, o); });
    }
    forward<Sink> f{*this, now, sink};
    scheduler_.advance(now, f);
    finish_removals(now, sink);
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(scheduler_.next_wake(), devices_.next_wake());
  }

  /// Refuses every request from now on; accepted ones continue to their ends.
  void drain() noexcept { admission_.drain(); }
  [[nodiscard]] bool is_draining() const noexcept { return admission_.is_draining(); }

  /// Accepted requests that have not ended.
  [[nodiscard]] std::size_t in_flight() const noexcept { return models_.in_flight(); }
  /// Whether requests of this model are accepted (unless draining).
  [[nodiscard]] bool is_accepting(model_id id) const noexcept { return models_.is_accepting(id); }
  /// Whether a device that may run the model is in service.
  [[nodiscard]] bool has_device(model_id id) const noexcept {
    return devices_.pools().has_device(models_[id].pool);
  }
  /// Changes whenever a result of `has_device` does.
  [[nodiscard]] std::uint64_t service_changes() const noexcept {
    return devices_.pools().changes();
  }
  /// Batches of a device: for each entry 0, 1 (running) or 2 (one sent ahead).
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    return devices_.at_work().outstanding(d);
  }
  /// The oldest batch of a non-empty entry.
  [[nodiscard]] const deferred::batch& running(device_entry at) const noexcept {
    return devices_.at_work().oldest(at);
  }
  [[nodiscard]] const Scheduler& scheduler() const noexcept { return scheduler_; }
  /// Which devices hang or fail.
  [[nodiscard]] const device_health& health() const noexcept { return devices_.health(); }
  /// Reported ends of unknown batches, requests and probes: duplicates, or ends of abandoned work.
  [[nodiscard]] std::uint64_t stray_ends() const noexcept { return devices_.stray_ends(); }
  [[nodiscard]] Observer& watcher() noexcept { return observer_; }

 private:
  /// The scheduler's sink.
  template <engine_sink Sink>
  struct forward {
    basic_engine_core& self;
    time_point now;
    Sink& sink;

    void dispatch(deferred::batch&& b) noexcept {
      self.observer_.dispatched(std::as_const(b).event(), now);
      const deferred::batch& sent = self.devices_.on_dispatch(std::move(b), self.models_);
      self.admission_.note_batch(sent, self.scheduler_, now);
      sink.launch(sent);
    }
    void drop(request& r) noexcept {
      self.admission_.note_drop(r, self.scheduler_, now);
      // A request that was retried did run.
      self.end(r, r.attempts > 0 ? outcome::failed : outcome::dropped, now, sink);
    }
  };

  /// Receives the calls of the devices' half.
  template <engine_sink Sink>
  struct owner {
    basic_engine_core& self;
    time_point now;
    Sink& sink;
    request_list again{};  // Requests that will wait for another batch.

    [[nodiscard]] Scheduler& matcher() noexcept { return self.scheduler_; }
    [[nodiscard]] model_lives& models() noexcept { return self.models_; }
    void batch_ended(deferred::batch& b, bool failed) noexcept {
      while (!b.requests.empty()) {
        request& r = b.requests.front();
        b.requests.pop_front();
        request_ended(r, failed);
      }
    }
    void request_ended(request& r, bool failed) noexcept {
      r.state = request_state::idle;
      const auto& m = self.models_[r.model];
      // The only device would suffer for what may be the request's fault.
      const std::uint32_t most = self.devices_.pools().devices(m.pool) > 1 ? 255 : 1;
      if (may_run_again(r, failed, m.is_repeatable,
                        std::min(most, self.health().options().retries)) &&
          self.scheduler_.models().is_feasible(r.model, r.deadline, now)) {
        again.push_back(r);
      } else {
        self.end(r, how_it_ended(r, failed, now + self.response_), now, sink);
      }
    }
    void device_changed(device_id d, std::string_view why, bool is_back) noexcept {
      if constexpr (requires { self.observer_.device_changed(d, device_state{}, why, now); }) {
        self.observer_.device_changed(d, self.health().state(d), why, now);
      }
      if (!is_back && self.health().options().hands_back) self.hand_back(now, sink);
    }
    void probe_hung(device_id d) noexcept {
      if constexpr (requires { self.observer_.probe_hung(d, now); }) {
        self.observer_.probe_hung(d, now);
      }
    }
    void model_suspended(model_id m, duration lasts) noexcept {
      if constexpr (requires { self.observer_.model_suspended(m, lasts, now); }) {
        self.observer_.model_suspended(m, lasts, now);
      }
      self.devices_.for_each_like(m, [&](model_id like) {
        const model_lives::model& is = self.models_[like];
        if (is.accepting || is.removing) self.end_waiting(like, now, sink);
      });
    }
    void stray_end() noexcept {
      if constexpr (requires { self.observer_.stray_end(); }) self.observer_.stray_end();
    }
    [[nodiscard]] bool abandon(const deferred::batch& b) noexcept
      requires requirement::sink_abandons_batches<Sink>
    {
      return sink.abandon(b);
    }
    void probe(device_id d, model_id with) noexcept
      requires requirement::sink_probes_devices<Sink>
    {
      sink.probe(d, with);
    }
    void abandon_probe(device_id d, model_id with) noexcept
      requires requirement::sink_abandons_probes<Sink>
    {
      sink.abandon_probe(d, with);
    }
    [[nodiscard]] runtime::thread_load load_of(device_id d) noexcept
      requires requirement::sink_tells_loads<Sink>
    {
      return sink.load_of(d);
    }
  };
  /// Calls the devices' half, then queues the requests to be retried.
  template <engine_sink Sink, class F>
  void on_devices(time_point now, Sink& sink, F&& act) noexcept {
    owner<Sink> o{*this, now, sink};
    act(o);
    try_again(o.again, now, sink);
    finish_removals(now, sink);
  }

  /// Last in a call: the scheduler may drop some, which have then waited.
  template <engine_sink Sink>
  void try_again(request_list& again, time_point now, Sink& sink) noexcept {
    forward<Sink> f{*this, now, sink};
    while (!again.empty()) {
      request& r = again.front();
      again.pop_front();
      if (devices_.hands_back(models_[r.model].pool) || devices_.is_suspended(r.model, now)) {
        end(r, outcome::failed, now, sink);
        continue;
      }
      if constexpr (requirement::sink_hears_of_retries<Sink>) sink.waits_again(r);
      ++r.attempts;
      if constexpr (requires { observer_.retried(r, now); }) observer_.retried(r, now);
      if (scheduler_.models().is_full(r.model)) {
        end(r, outcome::failed, now, sink);
      } else {
        scheduler_.on_arrival(r, now, f);
      }
    }
  }

  /// If so configured, ends requests that wait for models without a device in service.
  template <engine_sink Sink>
  void hand_back(time_point now, Sink& sink) noexcept {
    for (std::uint32_t i = 0; i < models_.size(); ++i) {
      const model_id id{i};
      if (models_[id].in_flight == 0 || !devices_.hands_back(models_[id].pool)) continue;
      end_waiting(id, now, sink);
    }
  }
  /// Ends the model's waiting requests `failed`.
  template <engine_sink Sink>
  void end_waiting(model_id id, time_point now, Sink& sink) noexcept {
    if constexpr (requires { scheduler_.models().queue(id); }) {
      forward<Sink> f{*this, now, sink};
      while (scheduler_.models().queued_requests(id) > 0) {
        request& r = scheduler_.models().queue(id)[0];
        scheduler_.on_cancel(r, now, f);
        end(r, outcome::failed, now, sink);
      }
    }
  }
  template <engine_sink Sink>
  void end(request& r, outcome how, time_point now, Sink& sink) noexcept {
    COHORT_ASSERT_USE(watch_.has(r), "another engine was given this request before its outcome");
    COHORT_ASSERT_USE(watch_.is_unchanged(r),
                      "model, arrival, deadline, size or priority of a request was changed before "
                      "its outcome");
    models_.end_request(r.model);
    observer_.ended(r, how, now);
    sink.ended(r, how);
  }

  // Not called from `end`: the scheduler may be in the middle of a call.
  template <engine_sink Sink>
  void finish_removals(time_point now, Sink& sink) noexcept {
    if (!models_.is_any_removed()) [[likely]]  // Repeated here for inlining.
      return;
    models_.take_gone([&](model_id id) {
      forward<Sink> f{*this, now, sink};
      scheduler_.remove_model(id, now, f);
      sink.model_removed(id);
    });
  }

  Scheduler scheduler_;
  duration response_;
  [[no_unique_address]] Observer observer_;
  device_half devices_;
  admission<Scheduler> admission_;
  model_lives models_;
  request_watch watch_;
};

/// The default for servers: it learns batch times, starts batches at once, and waits for larger
/// ones when simulations of its own recent traffic say that this loses fewer requests. These run
/// within `advance`, at most a quarter millisecond at a time (`sliced_trials`).
using engine_core = basic_engine_core<deferred::basic_tuned_scheduler<deferred::sliced_trials>>;
/// Deferred batch scheduling as in Symphony. It trusts the given profiles and lets batches end just
/// in time, so varying latencies make requests late.
using deferred_core = basic_engine_core<deferred::scheduler>;

}  // namespace cohort::engine
