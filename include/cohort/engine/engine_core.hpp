// SPDX-License-Identifier: Apache-2.0
/// @file
/// The life of requests around a scheduler: admission, batches at work, outcomes, cancellation,
/// drain. Still a value.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/batches_at_work.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/early_refusal.hpp>
#include <cohort/engine/engine_sink.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::engine {

/// One model, as the engine needs to know it.
struct model_config {
  deferred::model_config scheduling;
  std::uint32_t max_request_size = UINT32_MAX;  ///< Largest `request::size` accepted; at least 1.
  /// Whether to run a request twice is as good as once: then those of a batch that failed or hangs
  /// are tried again.
  bool is_repeatable = false;
};

/// A scheduler with everything a request needs from submission to its one outcome. A value: it owns
/// no thread, reads no clock and launches nothing; simulator and real-time engine drive the same
/// code. It talks to an `engine_sink`.
/// Devices that hang or fail get no work until a probe succeeds (`device_health`). Requests of a
/// batch that failed or hangs, if their model is repeatable and there is time for it, wait for
/// another batch; else they end `failed`. Those of a batch that hangs do so only if the sink can
/// have its device leave their memory alone (`abandon`); what a device says of it later is ignored.
/// Of an overloaded model, requests that could not be in time are refused at once
/// (`early_refusal`), if the scheduler is a `foreseeing_scheduler`.
/// Cost: that of the scheduler; no allocation but in `add_*`.
/// Thread safety: none.
template <deferred::batch_scheduler Scheduler = deferred::scheduler,
          observer Observer = null_observer>
class basic_engine_core {
 public:
  /// @param response Delay from the end of a batch to where deadlines are judged; at least 0.
  explicit basic_engine_core(Scheduler scheduler = Scheduler{}, duration response = duration{0},
                             Observer watcher = {}, const health_options& health = {},
                             const refusal_options& refusals = {})
      : scheduler_{std::move(scheduler)},
        response_{response},
        observer_{std::move(watcher)},
        health_{health},
        refusal_{refusals} {
    expects(response >= duration{0}, "engine_core: response must be at least 0");
  }

  /// Adds a model. Allocates. @throws config_error As `model_shard::add_model`.
  /// @param where What else the scheduler wants to know: for `pooled_scheduler`, the pool.
  template <class... Where>
  model_id add_model(const model_config& config, Where... where) {
    expects(config.max_request_size > 0, "model_config: max_request_size must be at least 1");
    const std::uint32_t max_size = config.max_request_size;
    const model_id id = scheduler_.add_model(config.scheduling, where...);
    if (id.index() >= models_.size()) models_.resize(id.index() + 1);
    make_pool(pool_among(where...));
    refusal_.add_model(id, config.scheduling.slo, pool_among(where...));
    models_[id.index()] = model{
        .max_request_size = max_size, .is_repeatable = config.is_repeatable, .accepting = true};
    models_[id.index()].pool = pool_among(where...);
    return id;
  }

  /// Lets a model go: new requests are refused, accepted ones are served to their end. When devices
  /// have let go of its batches, too, also of those that were given up, and of probes with it, the
  /// sink hears `model_removed` and the id may be given to another model.
  /// @returns Whether there was such a model.
  template <engine_sink Sink>
  bool remove_model(model_id id, time_point now, Sink& sink) noexcept {
    if (!is_accepting(id)) return false;
    models_[id.index()].accepting = false;
    models_[id.index()].removing = true;
    ++removing_;
    finish_removals(now, sink);
    return true;
  }

  /// Adds an idle device. Allocates. @throws config_error As the scheduler.
  /// @param where What else the scheduler wants to know: the device's capacity, which is 1 unless
  ///              said; for `pooled_scheduler` the pool before it.
  template <class... Where>
  device_id add_device(time_point now, Where... where) {
    const device_id d = scheduler_.add_device(now, where...);
    if (d.index() >= devices_.size()) devices_.resize(d.index() + 1);
    at_work_.add_device(d, scheduler_.capacity(d));
    devices_[d.index()].pool = pool_among(where...);
    make_pool(pool_among(where...));
    health_.add_device(d, scheduler_.capacity(d));
    count_in_service(d, true);
    return d;
  }
  /// Gives a device no more work; what it has still completes.
  void remove_device(device_id d, time_point now) noexcept {
    if (health_.is_in_service(d)) count_in_service(d, false);
    health_.remove_device(d);
    // Its id must not be another's while a probe may tell of it.
    if (!health_.is_probing(d)) scheduler_.remove_device(d, now);
  }

  /// Takes a request, or says why not; then it is still the caller's, untouched but for
  /// `retry_after`.
  template <engine_sink Sink>
  [[nodiscard]] std::optional<refusal> submit(request& r, time_point now, Sink& sink) noexcept {
    if (const std::optional<refusal> why = reason_to_refuse(r, now)) {
      observer_.refused(r, *why, now);
      return why;
    }
    if (is_refused_early(r, now)) {
      observer_.refused(r, refusal::overloaded, now);
      return refusal::overloaded;
    }
    r.cancel_requested = false;
    r.attempts = 0;
    ++models_[r.model.index()].in_flight;
    ++in_flight_;
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
    r.cancel_requested = true;
    forward<Sink> f{*this, now, sink};
    if (scheduler_.on_cancel(r, now, f)) {
      end(r, outcome::cancelled, now, sink);
    } else if constexpr (requirement::sink_cancels_running<Sink>) {
      sink.cancel_running(r);  // Its batch may be able to let it go.
    }
    finish_removals(now, sink);
  }

  /// A batch ended; `failed` if without results. Ends its requests, or has them wait for another.
  /// Batches of an entry end in order; of one that ended before its turn, as its launch threw, the
  /// requests end at once, and its place in the entry is free when the one before it has ended. Of
  /// a batch that the entry does not have, or that has ended: counted, and nothing else.
  /// @param at Without a number: the oldest of the entry.
  template <engine_sink Sink>
  void on_complete(batch_ticket at, bool failed, time_point now, Sink& sink) noexcept {
    const std::optional<std::uint32_t> place = at_work_.place_of(at);
    if (!place) return note_stray_end();
    request_list again;
    at_work_.note_end(at, *place, failed);
    end_batch(at_work_.nth(at, *place), failed, now, again, sink);
    while (const auto freed = at_work_.free_oldest(at)) {
      --models_[freed->model.index()].at_work;
      scheduler_.on_complete(at, now, freed->failed);
      if (const auto e = health_.on_complete(at, freed->failed, now)) take_out(*e, now, sink);
    }
    try_again(again, now, sink);
    finish_removals(now, sink);
  }

  /// One request of a batch of the entry ended before its batch did. O(requests before it there).
  /// Of one that is not there, for its batch was given up: counted, and nothing else.
  /// @param at Without a number: any batch of the entry.
  template <engine_sink Sink>
  void on_request_complete(batch_ticket at, const request& only, bool failed, time_point now,
                           Sink& sink) noexcept {
    for (std::uint32_t i = 0; at_work_.has_entry(at) && i < at_work_.count(at); ++i) {
      deferred::batch& b = at_work_.nth(at, i);
      if (at.number != 0 && b.number != at.number) continue;
      request_list& list = b.requests;
      for (request& r : list) {
        if (&r != &only) continue;
        list.erase(list.iterator_to(r));
        request_list again;
        end_run(r, failed, now, again, sink);
        try_again(again, now, sink);
        finish_removals(now, sink);
        return;
      }
    }
    note_stray_end();
  }

  /// A probe that the sink was asked for has ended.
  template <engine_sink Sink>
  void on_probe(device_id d, bool failed, time_point now, Sink& sink) noexcept {
    if (!health_.is_probing(d)) return note_stray_end();
    --models_[devices_[d.index()].probed_with.index()].at_work;
    finish_removals(now, sink);
    end_probe(d, failed, now);
  }

  /// Does all that is due at `now`.
  template <engine_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    while (const std::optional<health_event> e = health_.take_due(now)) {
      if (e->what == health_event::kind::probe) {
        probe(e->at.device, now, sink);
      } else {
        take_out(*e, now, sink);
        give_up(e->at, now, sink);
      }
    }
    forward<Sink> f{*this, now, sink};
    scheduler_.advance(now, f);
    finish_removals(now, sink);
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(scheduler_.next_wake(), health_.next());
  }

  /// From now on every request is refused; those accepted go on to their ends.
  void drain() noexcept { draining_ = true; }
  [[nodiscard]] bool is_draining() const noexcept { return draining_; }

  /// Requests accepted that have not ended.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  /// Whether requests of this model are accepted (unless draining).
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < models_.size() && models_[id.index()].accepting;
  }
  /// Whether a device that may run the model is in service.
  [[nodiscard]] bool has_device(model_id id) const noexcept {
    return pools_[models_[id.index()].pool.index()] > 0;
  }
  /// Changes with each answer of `has_device`.
  [[nodiscard]] std::uint64_t service_changes() const noexcept { return service_changes_; }
  /// The batches a device has: for each entry 0, 1 (at work) or 2 (one sent ahead).
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    return at_work_.outstanding(d);
  }
  /// The oldest batch of an entry that has one.
  [[nodiscard]] const deferred::batch& running(device_entry at) const noexcept {
    return at_work_.oldest(at);
  }
  [[nodiscard]] const Scheduler& scheduler() const noexcept { return scheduler_; }
  /// Which devices hang or fail.
  [[nodiscard]] const device_health& health() const noexcept { return health_; }
  /// Ends of batches, requests and probes that were not there: a backend told of one too many, or
  /// of one that was given up before.
  [[nodiscard]] std::uint64_t stray_ends() const noexcept { return stray_ends_; }
  [[nodiscard]] Observer& watcher() noexcept { return observer_; }

 private:
  struct model {
    std::uint32_t max_request_size = 0;
    bool is_repeatable = false;
    bool accepting = false;
    bool removing = false;
    std::size_t in_flight = 0;
    std::size_t at_work = 0;  // Batches that devices have, and probes.
    deferred::pool_id pool{};
  };

  struct device {
    deferred::pool_id pool{};
    model_id probed_with{};  // While a probe is under way.
  };
  void note_stray_end() noexcept {
    ++stray_ends_;
    if constexpr (requires { observer_.stray_end(); }) observer_.stray_end();
  }
  /// What a scheduler with pools was told of one; all others have one pool.
  static deferred::pool_id pool_among() noexcept { return {}; }
  template <class First, class... More>
  static deferred::pool_id pool_among(First first, More... /*more*/) noexcept {
    if constexpr (std::is_same_v<First, deferred::pool_id>) {
      return first;
    } else {
      return {};
    }
  }

  /// The scheduler's sink.
  template <engine_sink Sink>
  struct forward {
    basic_engine_core& self;
    time_point now;
    Sink& sink;

    void dispatch(deferred::batch&& b) noexcept {
      self.observer_.dispatched(dispatch_event{.model = b.model,
                                               .device = b.device,
                                               .size = b.size(),
                                               .first_sequence = b.first_sequence,
                                               .exec_at = b.exec_at,
                                               .latest = b.latest,
                                               .expected = b.expected,
                                               .work = b.work},
                                now);
      const deferred::batch& sent = self.at_work_.add(std::move(b));
      ++self.models_[sent.model.index()].at_work;
      self.health_.on_dispatch(sent.at(), sent.exec_at, sent.expected);
      self.note_batch(sent, now);
      sink.launch(sent);
    }
    void drop(request& r) noexcept {
      self.note_drop(r, now);
      // One that was tried before did run.
      self.end(r, r.attempts > 0 ? outcome::failed : outcome::dropped, now, sink);
    }
  };

  [[nodiscard]] std::optional<refusal> reason_to_refuse(const request& r,
                                                        time_point now) const noexcept {
    if (draining_) return refusal::draining;
    if (!is_accepting(r.model)) return refusal::unknown_model;
    if (r.size > models_[r.model.index()].max_request_size) return refusal::too_big;
    if (is_handed_back(r.model)) return refusal::no_device;
    if (scheduler_.models().is_full(r.model)) return refusal::queue_full;
    if (!scheduler_.models().is_feasible(r.model, r.deadline, now)) {
      return refusal::deadline_infeasible;
    }
    return std::nullopt;
  }

  /// Whether a request that could be taken would be late; then sets when to come again.
  [[nodiscard]] bool is_refused_early(request& r, time_point now) noexcept {
    if constexpr (deferred::foreseeing_scheduler<Scheduler>) {
      if (!refusal_.is_overloaded(r.model, now)) return false;
      const time_point start = scheduler_.next_free(r.model);
      if (start == distant_past) return false;
      const auto& models = scheduler_.models();
      const std::uint32_t target = models.target(r.model);
      const duration until_start =
          start == never ? unbounded : start - now - models.usual_excess(r.model, target);
      const std::optional<duration> retry_after =
          refusal_.judge(r.model,
                         {.ahead = models.queued_requests(r.model),
                          .target = target,
                          .batch = models.latency(r.model).sent()(target),
                          .slack = r.deadline - now - response_,
                          .until_a_start = std::max(duration{0}, until_start)},
                         now);
      if (!retry_after) return false;
      r.retry_after = *retry_after;
      scheduler_.on_refused(r, now);
      return true;
    } else {
      return false;
    }
  }
  void note_batch(const deferred::batch& b, time_point now) noexcept {
    if constexpr (deferred::foreseeing_scheduler<Scheduler>) {
      const auto& models = scheduler_.models();
      const latency_curve& run = models.latency(b.model).run();
      const duration until_first_deadline = b.latest - b.exec_at + run(b.size());
      refusal_.on_batch(b.model, b.size(), run.largest_within(until_first_deadline),
                        models.queued_requests(b.model), now);
    }
  }
  void note_drop(const request& r, time_point now) noexcept {
    if constexpr (deferred::foreseeing_scheduler<Scheduler>) {
      refusal_.on_drop(r.model, scheduler_.models().queued_requests(r.model), now);
    }
  }

  /// A request of a batch has run: it ends, or goes to those that are tried again.
  template <engine_sink Sink>
  void end_run(request& r, bool failed, time_point now, request_list& again, Sink& sink) noexcept {
    r.state = request_state::idle;
    if (failed && !r.cancel_requested && models_[r.model.index()].is_repeatable &&
        r.attempts < health_.options().retries &&
        scheduler_.models().is_feasible(r.model, r.deadline, now)) {
      again.push_back(r);
    } else {
      end(r, how_it_ended(r, failed, now), now, sink);
    }
  }
  template <engine_sink Sink>
  void end_batch(deferred::batch& b, bool failed, time_point now, request_list& again,
                 Sink& sink) noexcept {
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();
      end_run(r, failed, now, again, sink);
    }
  }
  /// Last in a call: the scheduler may drop some, which then waited.
  template <engine_sink Sink>
  void try_again(request_list& again, time_point now, Sink& sink) noexcept {
    forward<Sink> f{*this, now, sink};
    while (!again.empty()) {
      request& r = again.front();
      again.pop_front();
      if (is_handed_back(r.model)) {
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

  /// A device gets no more work until a probe succeeds.
  template <engine_sink Sink>
  void take_out(const health_event& e, time_point now, Sink& sink) noexcept {
    const device_id d = e.at.device;
    if (!e.is_new) return;
    if (health_.is_present(d)) {
      scheduler_.set_in_service(d, false, now);
      count_in_service(d, false);
    }
    note_state(d, e.what == health_event::kind::hangs ? "a batch hangs" : "batches fail", now);
    if (health_.options().hands_back) hand_back(now, sink);
  }
  /// Those who wait where no device is in service are not to wait for one, if so asked.
  template <engine_sink Sink>
  void hand_back(time_point now, Sink& sink) noexcept {
    if constexpr (requires { scheduler_.models().queue(model_id{}); }) {
      forward<Sink> f{*this, now, sink};
      for (std::uint32_t i = 0; i < models_.size(); ++i) {
        const model_id id{i};
        if (models_[i].in_flight == 0 || !is_handed_back(id)) continue;
        while (scheduler_.models().queued_requests(id) > 0) {
          request& r = scheduler_.models().queue(id)[0];
          scheduler_.on_cancel(r, now, f);
          end(r, outcome::failed, now, sink);
        }
      }
    }
  }
  [[nodiscard]] bool is_handed_back(model_id id) const noexcept {
    return health_.options().hands_back && !has_device(id);
  }
  void make_pool(deferred::pool_id p) {
    if (p.index() >= pools_.size()) pools_.resize(p.index() + 1);
  }
  void count_in_service(device_id d, bool is_back) noexcept {
    std::uint32_t& n = pools_[devices_[d.index()].pool.index()];
    const bool had_none = n == 0;
    is_back ? ++n : --n;
    if (had_none != (n == 0)) ++service_changes_;
  }
  /// The batches of an entry hang: their requests are to have their ends all the same.
  template <engine_sink Sink>
  void give_up(device_entry at, time_point now, Sink& sink) noexcept {
    if constexpr (requirement::sink_abandons_batches<Sink>) {
      request_list again;
      for (std::uint32_t i = 0; i < at_work_.count(at); ++i) {
        deferred::batch& b = at_work_.nth(at, i);
        if (b.requests.empty()) continue;
        if (sink.abandon(std::as_const(b))) {
          end_batch(b, true, now, again, sink);
        } else {
          health_.postpone(at, now);
        }
      }
      try_again(again, now, sink);
    }
  }
  /// With a model that stays until the probe has ended.
  template <engine_sink Sink>
  void probe(device_id d, time_point now, Sink& sink) noexcept {
    device& at = devices_[d.index()];
    const auto with = std::ranges::find_if(
        models_, [&](const model& m) { return m.accepting && m.pool == at.pool; });
    if constexpr (requirement::sink_probes_devices<Sink>) {
      if (with != models_.end()) {
        ++with->at_work;
        at.probed_with = model_id{static_cast<std::uint32_t>(with - models_.begin())};
        return sink.probe(d, at.probed_with);
      }
    }
    end_probe(d, false, now);  // Requests will tell.
  }
  void end_probe(device_id d, bool failed, time_point now) noexcept {
    const bool is_back = health_.on_probe(d, failed, now);
    if (!health_.is_present(d)) return scheduler_.remove_device(d, now);
    if (!is_back) return;
    scheduler_.set_in_service(d, true, now);
    count_in_service(d, true);
    note_state(d, "a probe succeeded", now);
  }
  void note_state(device_id d, std::string_view why, time_point now) noexcept {
    if constexpr (requires { observer_.device_changed(d, health_.state(d), why, now); }) {
      observer_.device_changed(d, health_.state(d), why, now);
    }
  }

  [[nodiscard]] outcome how_it_ended(const request& r, bool failed, time_point now) const noexcept {
    if (r.cancel_requested) return outcome::cancelled;
    if (failed) return outcome::failed;
    return now + response_ <= r.deadline ? outcome::completed : outcome::late;
  }

  template <engine_sink Sink>
  void end(request& r, outcome how, time_point now, Sink& sink) noexcept {
    --models_[r.model.index()].in_flight;
    --in_flight_;
    observer_.ended(r, how, now);
    sink.ended(r, how);
  }

  // Not from within `end`: the scheduler may be in the middle of a call.
  template <engine_sink Sink>
  void finish_removals(time_point now, Sink& sink) noexcept {
    if (removing_ == 0) return;
    forward<Sink> f{*this, now, sink};
    for (std::uint32_t i = 0; i < models_.size(); ++i) {
      const model& m = models_[i];
      if (!m.removing || m.in_flight > 0 || m.at_work > 0) continue;
      models_[i].removing = false;
      --removing_;
      scheduler_.remove_model(model_id{i}, now, f);
      sink.model_removed(model_id{i});
    }
  }

  Scheduler scheduler_;
  duration response_;
  [[no_unique_address]] Observer observer_;
  device_health health_;
  early_refusal refusal_;
  std::vector<model> models_;
  std::vector<device> devices_;
  batches_at_work at_work_;
  std::vector<std::uint32_t> pools_;  // How many devices of each are in service.
  std::uint64_t service_changes_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t removing_ = 0;
  std::uint64_t stray_ends_ = 0;
  bool draining_ = false;
};

/// Deferred batch scheduling, unobserved.
using engine_core = basic_engine_core<>;

}  // namespace cohort::engine
