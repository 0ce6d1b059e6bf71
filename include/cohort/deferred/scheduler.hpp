// SPDX-License-Identifier: Apache-2.0
/// @file
/// Deferred scheduling in one value: a model shard and a rank joined by direct call.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_scheduler.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/foresight.hpp>
#include <cohort/deferred/model_config.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/wake_lateness.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// Decides when each batch starts, which requests it contains and on which device it runs: requests
/// and completions go in, batches and drops come out. A value: it owns no thread and reads no
/// clock; the driver tells it the time, and calls `advance` at `next_wake()` and after every event.
/// Within one instant a driver delivers arrivals, then completions, then calls `advance`. It talks
/// to a `scheduler_sink`. Deterministic: the same calls give the same decisions. If devices run up
/// to c batches at one time, where c is the largest capacity present when the last device was
/// added, a batch's latency counts as c · ℓ(b): c batches that share a device evenly take no
/// longer. Thread safety: none. Complexity: O(log models + log queue + devices / 64 + c) a call.
///
/// @tparam Window When a batch may start.    @tparam Gather Which requests it contains and drops.
/// @tparam Target The size worth protecting. @tparam Priority Which model gets a free device first.
template <window_policy Window = frontrun, gather_policy Gather = drop_head,
          target_policy Target = staggered_target, priority_policy Priority = earliest_latest>
class basic_scheduler {
 public:
  explicit basic_scheduler(network_delays delays = {}, Window window = {}, Gather gather = {},
                           Target target = {}, Priority priority = {})
      : shard_{delays, std::move(window), std::move(gather), std::move(target),
               std::move(priority)} {}

  /// Adds a model; its id is the smallest free one. Allocates.
  /// @throws config_error If a batch of one cannot meet the SLO.
  model_id add_model(const model_config& config) {
    std::uint32_t id = 0;
    while (shard_.is_served(model_id{id})) ++id;
    rank_.reserve_models(id + 1);
    shard_.add_model(model_id{id}, config, sharing_);
    return model_id{id};
  }
  /// Removes a model; its waiting requests are dropped through the sink, running batches continue.
  template <scheduler_sink Sink>
  void remove_model(model_id id, time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, now, sink};
    shard_.remove_model(id, j);
  }

  /// Adds an idle device; its id is the smallest that is neither present nor at work. Allocates.
  /// @param capacity Number of batches it may run at one time; at least 1.
  /// @throws config_error If capacity is 0, or more than a model's SLO allows.
  device_id add_device(time_point now, std::uint32_t capacity = 1) {
    expects(capacity > 0, "add_device: capacity must be at least 1");
    const std::uint32_t sharing = std::max(capacity, rank_.largest_capacity());
    if (sharing != sharing_) shard_.set_sharing(sharing, [](model_id) { return true; }, now);
    sharing_ = sharing;
    std::uint32_t id = first_unused_device_;
    while (id < known_devices_ &&
           (rank_.has_device(device_id{id}) || rank_.outstanding(device_id{id}) > 0)) {
      ++id;
    }
    known_devices_ = std::max(known_devices_, id + 1);
    first_unused_device_ = id + 1;
    rank_.add_device(device_id{id}, now, capacity);
    times_.add_device(device_id{id}, capacity);
    return device_id{id};
  }
  /// Gives a device no more work. Its batches still complete.
  void remove_device(device_id d, time_point now) noexcept {
    rank_.remove_device(d, now);
    first_unused_device_ = std::min(first_unused_device_, d.value());
  }

  /// Suspends or resumes work for a present device. Its batches still complete.
  void set_in_service(device_id d, bool is_in_service, time_point now) noexcept {
    rank_.set_in_service(d, is_in_service, now);
  }

  /// Whether a device may be sent its next batch shortly before its running one should end, to hide
  /// message delays and late timers. On by default.
  void send_ahead(bool on) noexcept { rank_.send_ahead(on); }
  /// Counts a request that was refused because of overload.
  void on_refused(const request& r, time_point now) noexcept { shard_.on_refused(r, now); }
  /// When a device for the model should be free: `distant_past` if one is, or `never`.
  [[nodiscard]] time_point next_free(model_id /*m*/) const noexcept { return rank_.next_free(); }
  template <scheduler_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    // The rank gets its arrival time, though the driver may have left it waiting.
    joint<Sink> j{*this, std::min(r.arrival, now), sink};
    shard_.on_arrival(r, now, j);
  }
  /// @returns Whether the request was still queued; then it is idle. If not, it is in a batch.
  template <scheduler_sink Sink>
  bool on_cancel(request& r, time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, now, sink};
    return shard_.on_cancel(r, now, j);
  }
  /// Notes that the oldest batch of the entry ended, without results if `failed`.
  void on_complete(device_entry at, time_point now, bool failed = false) noexcept {
    rank_.on_complete(at, now);
    const batch_time t = times_.on_complete(at, now, failed, shard_);
    if (t.is_known) shard_.on_measured(t, now);
    // A failing device is free again soon and would attract all batches.
    rank_.set_slow(at.device, failed || (learns_ && times_.is_slow(at.device)));
    if (!rank_.has_device(at.device)) {
      first_unused_device_ = std::min(first_unused_device_, at.device.value());
    }
  }

  /// Starts to learn latencies and the lateness of timers in this way; off by default. Candidates
  /// are updated by the next `advance`. @throws config_error If a field is outside its range.
  void learn(const learning& how, time_point now) {
    shard_.learn(how, now);
    learns_ = how.is_on;
  }

  /// Replaces the policies. Candidates are updated by the next `advance`.
  void adopt(Window window, Gather gather, Target target, Priority priority, time_point now) {
    shard_.adopt(std::move(window), std::move(gather), std::move(target), std::move(priority), now);
  }
  /// Marks an idle entry as busy with another scheduler's batch that should end at `until`, not
  /// before `now`. Report its end by `on_complete`, as failed.
  void occupy(device_entry at, time_point until, time_point now) noexcept {
    rank_.occupy(at, until, now);
    times_.on_dispatch(at, {}, now);
  }
  /// Takes over another scheduler's measurements of models, pool and timers with the same ids.
  void assume(const basic_scheduler& other, time_point now) {
    shard_.assume(other.shard_, now);
    rank_.assume(other.rank_);
  }

  /// Does everything that is due at `now`.
  template <scheduler_sink Sink>
  [[gnu::always_inline]] void advance(time_point now, Sink& sink) noexcept {
    if (!learns_) {
      if (shard_.next_wake() <= now || rank_.has_work(now)) do_what_is_due(now, sink);
      return;
    }
    if (lateness_.woke(now)) shard_.set_wake_margin(lateness_.margin());
    if (shard_.next_wake() <= now || rank_.has_work(now)) do_what_is_due(now, sink);
    lateness_.ask(next_wake());
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept {
    return std::min(shard_.next_wake(), rank_.next_wake());
  }

  // For `patient_scheduler`.
  [[nodiscard]] time_point quiet_until(time_point now) const noexcept {
    const std::optional<model_id> first = rank_.next_to_open();
    const time_point opens =
        first ? shard_.foresee(*first, rank_.idle_fraction()).opening_by_rate(now) : never;
    return rank_.quiet_until(opens, shard_.least_lead(), now);
  }
  [[nodiscard]] bool may_wait(const unseen_requests& unseen, time_point sends,
                              time_point drops) const noexcept {
    if (!shard_.is_served(unseen.model)) return false;
    const foreseen f = shard_.foresee(unseen.model, rank_.idle_fraction()).with(unseen);
    return std::max(f.send_at, rank_.next_free() - f.lead) >= sends && f.send_by >= drops;
  }
  [[nodiscard]] bool is_scarce() const noexcept { return rank_.next_free() != distant_past; }

  /// The half that sees requests, and the half that sees devices; read only.
  [[nodiscard]] const auto& models() const noexcept { return shard_; }
  [[nodiscard]] const rank& devices() const noexcept { return rank_; }
  /// How the times of ended batches compare with their profiles, by device.
  [[nodiscard]] const batch_times& times() const noexcept { return times_; }
  /// How late timers fire; measured while latencies are learned.
  [[nodiscard]] const wake_lateness& lateness() const noexcept { return lateness_; }
  /// Capacity of a device that is present or at work.
  [[nodiscard]] std::uint32_t capacity(device_id d) const noexcept { return rank_.capacity(d); }

 private:
  /// Out of line, so that `advance` is short if nothing is due, as after most arrivals.
  template <scheduler_sink Sink>
  [[gnu::noinline]] void do_what_is_due(time_point now, Sink& sink) noexcept {
    joint<Sink> j{*this, now, sink};
    do {
      if (shard_.next_wake() <= now) {
        rank_.look(now);
        shard_.advance(now, j);
      }
      rank_.advance(now, j);
    } while (shard_.next_wake() <= now);
  }

  /// Passes messages between shard and rank directly, and the others to the caller's sink.
  template <scheduler_sink Sink>
  struct joint {
    basic_scheduler& self;
    time_point now;
    Sink& sink;

    static constexpr bool tells_what_waits = true;

    [[nodiscard]] pool_view pool(model_id) const noexcept { return self.rank_.pool(); }
    [[gnu::always_inline]] void candidate_changed(model_id id, const candidate& c) noexcept {
      self.rank_.on_candidate(id, c, now);
    }
    void grant(deferred::grant g) noexcept {
      if (self.learns_) g.slowness = self.times_.device_factor(g.device);
      self.shard_.on_grant(g, now, *this);
    }
    void waits(model_id id) noexcept { self.shard_.on_waiting(id); }
    void grant_used(model_id id, device_id d, time_point exec_at, duration expected) noexcept {
      self.rank_.on_grant_used(id, d, exec_at, expected, now);
    }
    void grant_returned(model_id id, device_id d) noexcept {
      self.rank_.on_grant_returned(id, d, now);
    }
    void dispatch(batch&& b) noexcept {
      self.times_.on_dispatch(b.at(), b.event(), now);
      sink.dispatch(std::move(b));
    }
    void drop(request& r) noexcept { sink.drop(r); }
  };

  basic_model_shard<Window, Gather, Target, Priority> shard_;
  rank rank_;
  batch_times times_;
  wake_lateness lateness_;
  bool learns_ = false;
  std::uint32_t sharing_ = 1;  // Factor of latencies: see the class.
  std::uint32_t known_devices_ = 0;
  std::uint32_t first_unused_device_ = 0;  // Lower ids are present or still at work.
};

/// The default composition: Symphony's deferred batch scheduling.
using scheduler = basic_scheduler<>;
static_assert(foreseeing_scheduler<scheduler> && patient_scheduler<scheduler>);

}  // namespace cohort::deferred
