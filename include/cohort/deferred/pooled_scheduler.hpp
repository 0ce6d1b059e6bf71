// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling with pools: each model may use only some of the devices.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/core/timer_queue.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/foresight.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/wake_lateness.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

using pool_id = strong_id<struct pool_tag>;

/// Like `basic_scheduler`, for devices in pools: a model belongs to one pool and runs only on its
/// devices. A pool is the devices of a sub-cluster, or one partition of a device. One shard holds
/// the models of all pools, and each pool has its own rank; a pool without events costs nothing.
/// The caller numbers pools densely from 0; a pool's memory is allocated at its first use. With
/// pool 0 alone it decides as `basic_scheduler` does. Same sink, same guarantees. Thread safety:
/// none. Complexity: that of `basic_scheduler` for one pool's devices and models, plus O(log
/// pools).
template <window_policy Window = frontrun, gather_policy Gather = drop_head,
          target_policy Target = staggered_target, priority_policy Priority = earliest_latest>
class basic_pooled_scheduler {
 public:
  explicit basic_pooled_scheduler(network_delays delays = {}, Window window = {},
                                  Gather gather = {}, Target target = {}, Priority priority = {})
      : shard_{delays, std::move(window), std::move(gather), std::move(target),
               std::move(priority)} {}

  /// Adds a model to a pool; its id is the smallest free one. Allocates.
  /// @throws config_error If a batch of one cannot meet the SLO.
  model_id add_model(const model_config& config, pool_id where = {}) {
    std::uint32_t id = 0;
    while (shard_.is_served(model_id{id})) ++id;
    pool& p = reach_pool(where);
    std::uint32_t local = 0;
    while (local < p.models.size() && is_at(p.models[local], where, model_id{local})) ++local;
    if (local == p.models.size()) p.models.emplace_back();
    if (id >= models_.size()) models_.resize(id + 1);
    p.matcher.reserve_models(local + 1);
    shard_.add_model(model_id{id}, config, p.sharing);
    models_[id] = {.pool = where, .local = model_id{local}};
    p.models[local] = model_id{id};
    return model_id{id};
  }
  /// Removes a model; its waiting requests are dropped through the sink, running batches continue.
  template <scheduler_sink Sink>
  void remove_model(model_id id, time_point now, Sink& sink) noexcept {
    from_shard<Sink> j{*this, now, sink};
    shard_.remove_model(id, j);
  }

  /// Adds an idle device to a pool; its id is the smallest that is neither present nor at work.
  /// Allocates. @param capacity As for `basic_scheduler`, in the pool.
  /// @throws config_error If capacity is 0, or more than the SLO of a model of the pool allows.
  device_id add_device(time_point now, pool_id where = {}, std::uint32_t capacity = 1) {
    expects(capacity > 0, "add_device: capacity must be at least 1");
    share(where, capacity, now);
    std::uint32_t id = 0;
    while (id < devices_.size() && is_in_use(device_id{id})) ++id;
    if (id == devices_.size()) devices_.emplace_back();
    pool& p = reach_pool(where);
    std::uint32_t local = 0;
    while (local < p.devices.size() && (p.matcher.has_device(device_id{local}) ||
                                        p.matcher.outstanding(device_id{local}) > 0)) {
      ++local;
    }
    if (local == p.devices.size()) p.devices.emplace_back();
    p.devices[local] = device_id{id};
    devices_[id] = {.pool = where, .local = device_id{local}};
    p.matcher.add_device(device_id{local}, now, capacity);
    times_.add_device(device_id{id}, capacity);
    touch(where);
    return device_id{id};
  }
  /// Gives a device no more work. Its batches still complete.
  void remove_device(device_id d, time_point now) noexcept {
    const device_place at = devices_[d.index()];
    rank_of(at.pool).remove_device(at.local, now);
    touch(at.pool);
  }

  /// Suspends or resumes work for a present device. Its batches still complete.
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    const device_place at = devices_[d.index()];
    rank_of(at.pool).set_in_service(at.local, is_in_service, now);
    touch(at.pool);
  }

  /// Like `basic_scheduler::send_ahead`, for all pools.
  void send_ahead(bool on) noexcept {
    sends_ahead_ = on;
    for (pool& p : pools_) p.matcher.send_ahead(on);
  }
  /// Counts a request that was refused because of overload.
  void on_refused(const request& r, time_point now) noexcept { shard_.on_refused(r, now); }
  /// When a device for the model should be free: `distant_past` if one is, or `never`.
  [[nodiscard]] time_point next_free(model_id m) const noexcept {
    return pools_[models_[m.index()].pool.index()].matcher.next_free();
  }
  template <scheduler_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    // The rank gets its arrival time, though the driver may have left it waiting.
    from_shard<Sink> j{*this, std::min(r.arrival, now), sink};
    shard_.on_arrival(r, now, j);
  }
  /// @returns Whether the request was still queued; then it is idle. If not, it is in a batch.
  template <scheduler_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    from_shard<Sink> j{*this, now, sink};
    return shard_.on_cancel(r, now, j);
  }
  /// Notes that the oldest batch of the entry ended, without results if `failed`.
  void on_complete(device_entry at, time_point now, bool failed = false) noexcept {
    const device_place place = devices_[at.device.index()];
    rank_of(place.pool).on_complete({place.local, at.entry}, now);
    touch(place.pool);
    const batch_time t = times_.on_complete(at, now, failed, shard_);
    if (t.is_known) shard_.on_measured(t, now);
    rank_of(place.pool).set_slow(place.local, failed || (learns_ && times_.is_slow(at.device)));
  }

  /// Like `basic_scheduler::learn`.
  void learn(const learning& how, time_point now) {
    shard_.learn(how, now);
    learns_ = how.is_on;
  }

  /// Does everything that is due at `now`.
  template <scheduler_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    if (learns_ && lateness_.woke(now)) shard_.set_wake_margin(lateness_.margin());
    if (shard_.next_wake() <= now) {
      for (pool& p : pools_) p.matcher.look(now);
    }
    from_shard<Sink> j{*this, now, sink};
    do {
      shard_.advance(now, j);
      ready_.clear();
      for (std::uint32_t i; (i = due_.pop_due(now)) != timer_queue::none;) ready_.push_back(i);
      for (const std::uint32_t i : ready_) {
        from_rank<Sink> k{j, pools_[i]};
        pools_[i].matcher.advance(now, k);
        due_.arm(i, pools_[i].matcher.next_wake());
      }
    } while (shard_.next_wake() <= now);
    if (learns_) lateness_.ask(next_wake());
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(shard_.next_wake(), due_.next());
  }

  // For `patient_scheduler`.
  [[nodiscard]] time_point quiet_until(time_point now) const noexcept {
    if (due_.next() == never) return never;
    const pool& p = pools_[due_.next_slot()];
    const std::optional<model_id> first = p.matcher.next_to_open();
    const time_point opens =
        first ? shard_.foresee(p.models[first->index()], p.matcher.idle_fraction())
                    .opening_by_rate(now)
              : never;
    return p.matcher.quiet_until(opens, shard_.least_lead(), now);
  }
  [[nodiscard]] bool may_wait(const unseen_requests& unseen, time_point sends,
                              time_point drops) const noexcept {
    if (!shard_.is_served(unseen.model)) return false;
    const rank& r = pools_[models_[unseen.model.index()].pool.index()].matcher;
    const foreseen f = shard_.foresee(unseen.model, r.idle_fraction()).with(unseen);
    return std::max(f.send_at, r.next_free() - f.lead) >= sends && f.send_by >= drops;
  }
  [[nodiscard]] bool is_scarce() const noexcept {
    return std::ranges::any_of(pools_,
                               [](const pool& p) { return p.matcher.next_free() != distant_past; });
  }

  /// The half that sees requests; read only.
  [[nodiscard]] const auto& models() const noexcept { return shard_; }
  /// The devices of a pool that was used before, under the pool's own ids; read only.
  [[nodiscard]] const rank& devices(pool_id where) const noexcept {
    return pools_[where.index()].matcher;
  }
  /// How the times of ended batches compare with their profiles, by device.
  [[nodiscard]] const batch_times& times() const noexcept { return times_; }
  /// How late timers fire; measured while latencies are learned.
  [[nodiscard]] const wake_lateness& lateness() const noexcept { return lateness_; }
  /// Capacity of a device that is present or at work.
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept {
    const device_place at = devices_[d.index()];
    return pools_[at.pool.index()].matcher.capacity(at.local);
  }

 private:
  struct pool {
    rank matcher;                    // With ids local to the pool.
    std::vector<device_id> devices;  // By local id; those in use.
    std::vector<model_id> models;
    std::uint32_t sharing = 1;  // As in `basic_scheduler`.
  };
  struct device_place {
    pool_id pool;
    device_id local;
  };
  struct model_place {
    pool_id pool;
    model_id local;
  };

  /// The shard's sink: passes its messages to the rank of the model's pool.
  template <scheduler_sink Sink>
  struct from_shard {
    basic_pooled_scheduler& self;
    time_point now;
    Sink& sink;

    static constexpr bool tells_what_waits = true;

    [[nodiscard]] pool_view pool(model_id id) const noexcept {
      return self.rank_of(self.models_[id.index()].pool).pool();
    }
    void candidate_changed(model_id id, const candidate& c) noexcept {
      const model_place at = self.models_[id.index()];
      self.rank_of(at.pool).on_candidate(at.local, c, now);
      self.touch(at.pool);
    }
    void grant_used(model_id id, device_id d, time_point exec_at, duration expected) noexcept {
      const model_place at = self.models_[id.index()];
      self.rank_of(at.pool).on_grant_used(at.local, self.devices_[d.index()].local, exec_at,
                                          expected, now);
    }
    void grant_returned(model_id id, device_id d) noexcept {
      const model_place at = self.models_[id.index()];
      self.rank_of(at.pool).on_grant_returned(at.local, self.devices_[d.index()].local, now);
    }
    void dispatch(batch&& b) noexcept {
      self.times_.on_dispatch(b.at(), b.event(), now);
      sink.dispatch(std::move(b));
    }
    void drop(request& r) noexcept { sink.drop(r); }
  };
  /// A rank's sink: passes grants to the shard, under global ids.
  template <scheduler_sink Sink>
  struct from_rank {
    from_shard<Sink>& out;
    const pool& in;

    void grant(deferred::grant g) noexcept {
      g.model = in.models[g.model.index()];
      g.device = in.devices[g.device.index()];
      if (out.self.learns_) g.slowness = out.self.times_.device_factor(g.device);
      out.self.shard_.on_grant(g, out.now, out);
    }
    void waits(model_id id) noexcept { out.self.shard_.on_waiting(in.models[id.index()]); }
  };

  [[nodiscard]] rank& rank_of(pool_id p) noexcept { return pools_[p.index()].matcher; }
  /// Whether the model at this place still has that id: ids of removed models are reused.
  [[nodiscard]] bool is_at(model_id id, pool_id where, model_id local) const noexcept {
    return shard_.is_served(id) && models_[id.index()].pool == where &&
           models_[id.index()].local == local;
  }
  [[nodiscard]] bool is_in_use(device_id d) const noexcept {
    const device_place at = devices_[d.index()];
    const rank& r = pools_[at.pool.index()].matcher;
    return pools_[at.pool.index()].devices[at.local.index()] == d &&
           (r.has_device(at.local) || r.outstanding(at.local) > 0);
  }
  pool& reach_pool(pool_id p) {
    if (p.index() >= pools_.size()) {
      const std::size_t before = pools_.size();
      pools_.resize(p.index() + 1);
      for (std::size_t i = before; i < pools_.size(); ++i)
        pools_[i].matcher.send_ahead(sends_ahead_);
      due_.resize(p.index() + 1);
      ready_.reserve(p.index() + 1);
    }
    return pools_[p.index()];
  }
  /// Raises `sharing` for a device that is about to be added, if needed.
  void share(pool_id where, std::uint32_t capacity, time_point now) {
    pool& p = reach_pool(where);
    const std::uint32_t sharing = std::max(capacity, p.matcher.largest_capacity());
    if (sharing == p.sharing) return;
    const auto is_here = [&](model_id m) { return models_[m.index()].pool == where; };
    shard_.set_sharing(sharing, is_here, now);
    p.sharing = sharing;
  }
  /// Updates a pool's timer after an event of its rank.
  void touch(pool_id p) noexcept { due_.arm(p.index(), rank_of(p).next_wake()); }

  basic_model_shard<Window, Gather, Target, Priority> shard_;
  batch_times times_;
  wake_lateness lateness_;
  bool learns_ = false;
  bool sends_ahead_ = true;
  std::vector<pool> pools_;
  std::vector<model_place> models_;    // By model.
  std::vector<device_place> devices_;  // By device; after removal, the last place.
  timer_queue due_;                    // By pool: when its rank must be advanced.
  std::vector<std::uint32_t> ready_;
};

/// Symphony's deferred batch scheduling in each pool.
using pooled_scheduler = basic_pooled_scheduler<>;
static_assert(foreseeing_scheduler<pooled_scheduler> && patient_scheduler<pooled_scheduler>);

}  // namespace cohort::deferred
