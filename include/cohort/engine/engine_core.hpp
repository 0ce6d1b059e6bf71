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
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/engine_sink.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine {

/// One model, as the engine needs to know it.
struct model_config {
  deferred::model_config scheduling;
  std::uint32_t max_request_size = UINT32_MAX;  ///< Largest `request::size` accepted; at least 1.
};

/// A scheduler with everything a request needs from submission to its one outcome. A value: it owns
/// no thread, reads no clock and launches nothing; simulator and real-time engine drive the same
/// code. It talks to an `engine_sink`. Cost: that of the scheduler; no allocation but in `add_*`.
/// Thread safety: none.
template <deferred::batch_scheduler Scheduler = deferred::scheduler,
          observer Observer = null_observer>
class basic_engine_core {
 public:
  /// @param response Delay from the end of a batch to where deadlines are judged; at least 0.
  explicit basic_engine_core(Scheduler scheduler = Scheduler{}, duration response = duration{0},
                             Observer watcher = {})
      : scheduler_{std::move(scheduler)}, response_{response}, observer_{std::move(watcher)} {
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
    models_[id.index()] = model{.max_request_size = max_size, .accepting = true};
    return id;
  }

  /// Lets a model go: new requests are refused, accepted ones are served to their end, then the
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
    devices_[d.index()].resize(scheduler_.capacity(d));
    return d;
  }
  /// Gives a device no more work; what it has still completes.
  void remove_device(device_id d, time_point now) noexcept { scheduler_.remove_device(d, now); }

  /// Takes a request, or says why not; then it is untouched and still the caller's.
  template <engine_sink Sink>
  [[nodiscard]] std::optional<refusal> submit(request& r, time_point now, Sink& sink) noexcept {
    if (const std::optional<refusal> why = reason_to_refuse(r, now)) {
      observer_.refused(r, *why, now);
      return why;
    }
    r.cancel_requested = false;
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

  /// The oldest batch of an entry ended; `failed` if without results. Ends its requests.
  template <engine_sink Sink>
  void on_complete(device_entry at, bool failed, time_point now, Sink& sink) noexcept {
    lane& at_work = lane_of(at);
    COHORT_ASSERT(at_work.count > 0);
    deferred::batch& done = at_work.nth(0);
    while (!done.requests.empty()) {
      request& r = done.requests.front();
      done.requests.pop_front();
      r.state = request_state::idle;
      end(r, how_it_ended(r, failed, now), now, sink);
    }
    at_work.first = (at_work.first + 1) % deferred::rank::entry_depth;
    --at_work.count;
    scheduler_.on_complete(at, now, failed);
    finish_removals(now, sink);
  }

  /// One request of a batch of the entry ended before its batch did. O(requests before it there).
  template <engine_sink Sink>
  void on_request_complete(device_entry at, const request& only, bool failed, time_point now,
                           Sink& sink) noexcept {
    lane& at_work = lane_of(at);
    for (std::uint32_t i = 0; i < at_work.count; ++i) {
      request_list& list = at_work.nth(i).requests;
      for (request& r : list) {
        if (&r != &only) continue;
        list.erase(list.iterator_to(r));
        r.state = request_state::idle;
        end(r, how_it_ended(r, failed, now), now, sink);
        finish_removals(now, sink);
        return;
      }
    }
    COHORT_ASSERT(false);
  }

  /// Does all that is due at `now`.
  template <engine_sink Sink>
  void advance(time_point now, Sink& sink) noexcept {
    forward<Sink> f{*this, now, sink};
    scheduler_.advance(now, f);
    finish_removals(now, sink);
  }
  /// When `advance` must be called next, or `never`.
  [[nodiscard]] time_point next_wake() const noexcept { return scheduler_.next_wake(); }

  /// From now on every request is refused; those accepted go on to their ends.
  void drain() noexcept { draining_ = true; }
  [[nodiscard]] bool is_draining() const noexcept { return draining_; }

  /// Requests accepted that have not ended.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  /// Whether requests of this model are accepted (unless draining).
  [[nodiscard]] bool is_accepting(model_id id) const noexcept {
    return id.index() < models_.size() && models_[id.index()].accepting;
  }
  /// The batches a device has: for each entry 0, 1 (at work) or 2 (one sent ahead).
  [[nodiscard]] std::uint32_t outstanding(device_id d) const noexcept {
    std::uint32_t sum = 0;
    for (const lane& l : devices_[d.index()]) sum += l.count;
    return sum;
  }
  /// The oldest batch of an entry that has one.
  [[nodiscard]] const deferred::batch& running(device_entry at) const noexcept {
    const lane& l = devices_[at.device.index()][at.entry];
    return l.batches[l.first];
  }
  [[nodiscard]] const Scheduler& scheduler() const noexcept { return scheduler_; }
  [[nodiscard]] Observer& watcher() noexcept { return observer_; }

 private:
  struct model {
    std::uint32_t max_request_size = 0;
    bool accepting = false;
    bool removing = false;
    std::size_t in_flight = 0;
  };

  struct lane {  // An entry's batches, in the order in which they were sent.
    std::array<deferred::batch, deferred::rank::entry_depth> batches;
    std::uint32_t first = 0;
    std::uint32_t count = 0;

    [[nodiscard]] deferred::batch& nth(std::uint32_t i) noexcept {
      return batches[(first + i) % batches.size()];
    }
  };
  [[nodiscard]] lane& lane_of(device_entry at) noexcept {
    return devices_[at.device.index()][at.entry];
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
      lane& at_work = self.lane_of(b.at());
      COHORT_ASSERT(at_work.count < deferred::rank::entry_depth);
      deferred::batch& slot = at_work.nth(at_work.count);
      slot = std::move(b);
      ++at_work.count;
      sink.launch(std::as_const(slot));
    }
    void drop(request& r) noexcept { self.end(r, outcome::dropped, now, sink); }
  };

  [[nodiscard]] std::optional<refusal> reason_to_refuse(const request& r,
                                                        time_point now) const noexcept {
    if (draining_) return refusal::draining;
    if (!is_accepting(r.model)) return refusal::unknown_model;
    if (r.size > models_[r.model.index()].max_request_size) return refusal::too_big;
    if (scheduler_.models().is_full(r.model)) return refusal::queue_full;
    if (!scheduler_.models().is_feasible(r.model, r.deadline, now)) {
      return refusal::deadline_infeasible;
    }
    return std::nullopt;
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
      if (!models_[i].removing || models_[i].in_flight > 0) continue;
      models_[i].removing = false;
      --removing_;
      scheduler_.remove_model(model_id{i}, now, f);
      sink.model_removed(model_id{i});
    }
  }

  Scheduler scheduler_;
  duration response_;
  [[no_unique_address]] Observer observer_;
  std::vector<model> models_;
  std::vector<std::vector<lane>> devices_;  // Their entries.
  std::size_t in_flight_ = 0;
  std::size_t removing_ = 0;
  bool draining_ = false;
};

/// Deferred batch scheduling, unobserved.
using engine_core = basic_engine_core<>;

}  // namespace cohort::engine
