// SPDX-License-Identifier: Apache-2.0
/// @file
/// The half of an engine that sees devices: `device_half`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/batches_at_work.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/device_service.hpp>
#include <cohort/engine/model_costs.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace cohort::engine {

/// Tracks the batches of devices from dispatch to end, and handles devices that hang or fail: takes
/// them out of service, abandons their hung batches, has them probed and puts them back. Requests
/// belong to the other half: `basic_engine_core` in an engine with one thread, otherwise another
/// thread. Most calls take the other half as `owner`:
/// * `matcher()`: the component that assigns work to devices, with `on_complete`, `set_in_service`
///   and `remove_device` as in `basic_scheduler` and `rank_half`;
/// * `models()`: `begin_work(id)`, `end_work(id)`, `any_of(pool, behind)`, `has_other(id)`, as
///   `model_lives`;
/// * `batch_ended(batch&, failed)`: the owner takes its requests; `request_ended(request&,
///   failed)`: a request that has left its batch;
/// * `device_changed(id, why, is_back)`: the device is out of service, or back; `probe_hung(id)`:
///   its probe hangs;
/// * optionally `model_suspended(id, lasts)`: the model's requests took several devices out of
///   service (`model_costs`); refuse them while `is_suspended`, and those of the models
///   `for_each_like` it;
/// * `stray_end()`: the end of something unknown was reported;
/// * optionally `abandon(batch)`, `probe(device, model)`, `abandon_probe(device, model)` and
///   `load_of(device)`, as an `engine_sink`. A value. Cost: that of `device_health`; allocates only
///   in `add_*`. Thread safety: none.
class device_half {
 public:
  /// @throws config_error If an option is outside its range.
  explicit device_half(const health_options& o) : service_{o} {}

  /// Adds a model; its id may have belonged to a removed one.
  /// @param counts_as As `model_config::counts_as`.
  void add_model(model_id m, std::optional<model_id> counts_as) { costs_.add_model(m, counts_as); }

  void add_pool(deferred::pool_id p) { service_.add_pool(p); }
  /// Adds an idle device that the matcher has.
  void add_device(device_id d, std::uint32_t capacity, deferred::pool_id p) {
    at_work_.add_device(d, capacity);
    service_.add_device(d, capacity, p);
  }
  /// Gives a device no more work for good; its batches still end.
  template <device_matcher Matcher>
  void remove_device(device_id d, Matcher& matcher, time_point now) noexcept {
    service_.remove_device(d, matcher, now);
  }

  /// Adds a dispatched batch. @param models `begin_work(id)` and `[id].longest_run`, as
  /// `model_lives`.
  /// @returns Its address until its end.
  template <class Models>
  const deferred::batch& on_dispatch(deferred::batch&& b, Models& models) noexcept {
    const deferred::batch& sent = at_work_.add(std::move(b));
    models.begin_work(sent.model);
    costs_.ran(sent.model);
    service_.health().on_dispatch(sent.at(), sent.exec_at, sent.expected,
                                  models[sent.model].longest_run);
    return sent;
  }
  /// Handles the end of a batch. Batches of an entry end in order. If a batch ended early because
  /// its launch threw, its requests end at once, and its place is free when the previous batch has
  /// ended. If the batch is unknown or has already ended, only calls `stray_end`.
  /// @param at Without a number: the oldest of the entry.
  template <class Owner>
  void on_complete(batch_ticket at, bool failed, time_point now, Owner& owner) noexcept {
    const std::optional<std::uint32_t> place = at_work_.place_of(at);
    if (!place) return note_stray_end(owner);
    deferred::batch& ended = at_work_.nth(at, *place);
    if (failed) {
      for (request& r : ended.requests) note_failure(r, at, *place, now);
    }
    at_work_.note_end(at, *place, failed);
    owner.batch_ended(ended, failed);
    while (const auto freed = at_work_.free_oldest(at)) {
      owner.models().end_work(freed->model);
      owner.matcher().on_complete(at, now, freed->failed);
      if (const auto e = service_.health().on_complete(at, freed->failed, now, freed->is_blamed))
        take_out(*e, freed->model, now, owner);
    }
  }
  /// Handles a request that ended before its batch. O(requests before it there).
  /// @param at Without a number: any batch of the entry.
  template <class Owner>
  void on_request_complete(batch_ticket at, const request& only, bool failed, time_point now,
                           Owner& owner) noexcept {
    std::uint32_t place = 0;
    request* const r = at_work_.take_request(at, only, &place);
    if (r == nullptr) return note_stray_end(owner);
    if (failed) note_failure(*r, at, place, now);
    owner.request_ended(*r, failed);
  }
  /// Handles the end of a requested probe.
  template <class Owner>
  void on_probe(device_id d, bool failed, time_point now, Owner& owner) noexcept {
    if (!health().is_probing(d)) return note_stray_end(owner);
    owner.models().end_work(service_.probed_with(d));
    end_probe(d, failed, now, owner);
  }

  /// Does everything that is due at `now`.
  template <class Owner>
  void advance(time_point now, Owner& owner) noexcept {
    const auto load = [&](device_entry at) noexcept {
      if constexpr (requires { owner.load_of(at.device); }) return owner.load_of(at.device);
      return runtime::thread_load{};
    };
    while (const std::optional<health_event> e = service_.health().take_due(now, load)) {
      if (e->what == health_event::kind::probe) {
        probe(e->at.device, now, owner);
      } else if (e->what == health_event::kind::probe_hangs) {
        probe_hangs(e->at.device, owner);
      } else {
        take_out(*e, at_work_.oldest(e->at).model, now, owner);
        give_up(e->at, now, owner);
      }
    }
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept { return health().next(); }

  /// Whether a model's requests must be refused.
  [[nodiscard]] bool is_suspended(model_id m, time_point now) const noexcept {
    return costs_.is_suspended(m, now);
  }
  /// Calls `f(model_id)` for each model suspended together with `m`, as `model_costs` does.
  template <class F>
  void for_each_like(model_id m, F f) const noexcept {
    costs_.for_each_like(m, f);
  }
  /// Whether requests for devices of a pool must be handed back.
  [[nodiscard]] bool hands_back(deferred::pool_id p) const noexcept {
    return service_.hands_back(p);
  }
  [[nodiscard]] const device_health& health() const noexcept { return service_.health(); }
  /// The devices in service, by pool.
  [[nodiscard]] const device_pools& pools() const noexcept { return service_.pools(); }
  [[nodiscard]] const batches_at_work& at_work() const noexcept { return at_work_; }
  /// Reported ends of unknown batches, requests and probes: duplicates, or ends of abandoned work.
  [[nodiscard]] std::uint64_t stray_ends() const noexcept { return stray_ends_; }

 private:
  template <class Owner>
  void note_stray_end(Owner& owner) noexcept {
    ++stray_ends_;
    owner.stray_end();
  }
  /// Notes that a request failed in a batch. If another device failed it before, the request is to
  /// blame, not the devices, and it is not retried.
  /// @param place Position of the batch in its entry.
  void note_failure(request& r, device_entry at, std::uint32_t place, time_point now) noexcept {
    if (r.is_unfit) return;
    if (!r.failed_on) {
      r.failed_on = at.device;
    } else if (*r.failed_on != at.device) {
      r.is_spent = true;
      // Once per batch: its requests mostly failed together before.
      if (at_work_.note_blame(at, place, *r.failed_on))
        service_.health().forgive(*r.failed_on, now);
    }
  }
  /// Takes a device out of service until a probe succeeds. @param of The model of the batch.
  template <class Owner>
  void take_out(const health_event& e, model_id of, time_point now, Owner& owner) noexcept {
    if (!service_.take_out(e, owner.matcher(), now)) return;
    const bool hangs = e.what == health_event::kind::hangs;
    owner.device_changed(e.at.device, hangs ? "a batch hangs" : "batches fail", false);
    if constexpr (requires { owner.model_suspended(of, duration{}); }) {
      if (!health().options().suspends_models || !owner.models().has_other(of)) return;
      // If requests are handed back, other pools can run them.
      const bool is_only = !health().options().hands_back && service_.is_only(e.at.device);
      if (const auto lasts = costs_.note(of, e.at.device, now, is_only))
        owner.model_suspended(of, *lasts);
    }
  }
  /// Abandons the hung batches of an entry so that their requests end. The device hung in the
  /// oldest batch; its requests are not retried.
  template <class Owner>
  void give_up(device_entry at, time_point now, Owner& owner) noexcept {
    if constexpr (requires(const deferred::batch& b) { owner.abandon(b); }) {
      for (std::uint32_t i = 0; i < at_work_.count(at); ++i) {
        deferred::batch& b = at_work_.nth(at, i);
        if (b.requests.empty()) continue;
        if (owner.abandon(std::as_const(b))) {
          for (request& r : b.requests) r.is_spent |= !std::exchange(r.was_behind, false) && i == 0;
          owner.batch_ended(b, true);
        } else {
          service_.health().postpone(at, now);
        }
      }
    }
  }
  /// Probes with a model that stays until the probe has ended.
  template <class Owner>
  void probe(device_id d, time_point now, Owner& owner) noexcept {
    if constexpr (requires { owner.probe(d, model_id{}); }) {
      if (const auto with = service_.begin_probe(d, owner.models())) return owner.probe(d, *with);
    }
    end_probe(d, false, now, owner);  // Requests serve as the probe.
  }
  /// Leaves the device as it is until the probe ends; asks the owner to end the probe if it can.
  template <class Owner>
  void probe_hangs(device_id d, Owner& owner) noexcept {
    owner.probe_hung(d);
    if constexpr (requires { owner.abandon_probe(d, model_id{}); }) {
      owner.abandon_probe(d, service_.probed_with(d));
    }
  }
  template <class Owner>
  void end_probe(device_id d, bool failed, time_point now, Owner& owner) noexcept {
    if (service_.end_probe(d, failed, owner.matcher(), now))
      owner.device_changed(d, "a probe succeeded", true);
  }

  device_service service_;
  batches_at_work at_work_;
  model_costs costs_;
  std::uint64_t stray_ends_ = 0;
};

}  // namespace cohort::engine
