// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interfaces that an engine joins: `backend` runs batches and reports their ends to a
/// `completion_target`, `completion_context` receives outcomes, and `engine_sink` is the loop as
/// seen by the engine's core.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Describes a device of an engine to its backend.
struct device_spec {
  device_id gpu{};             ///< Index of the backend's executor that runs it.
  device_share share{};        ///< Share of that GPU's compute.
  std::uint32_t capacity = 1;  ///< Batches at one time, as given to the scheduler; at least 1.
};

/// Runs batches. Semantics: `launch` starts the batch on its device behind the present work of its
/// entry, does not block, and later calls `complete(batch.at(), failed)` of the loop once, from any
/// thread. Batches of an entry complete in order, those of different entries in any order. A
/// repeated report is ignored if it names the ticket, not only the entry. It may report single
/// requests earlier with `complete_request`. Called on the loop's thread. If `launch` throws, the
/// batch has failed and must not be reported. If it has `unbind()`, that is called when the loop
/// ends; it must report nothing afterwards. Models: `executor_backend`, `profile_backend`.
template <class B>
concept backend = requires(B& b, const deferred::batch& x) { b.launch(x); };

/// A backend that is itself driven by time: `next_event()` and `advance(now)`, called by the loop.
template <class B>
concept driven_backend = backend<B> && requires(B& b, time_point now) {
  { b.next_event() } -> std::same_as<time_point>;
  b.advance(now);
};

/// A backend that can end a single request of a running batch: `cancel(request)`, called on the
/// loop's thread; it may do nothing.
template <class B>
concept cancelling_backend = backend<B> && requires(B& b, const request& r) {
  { b.cancel(r) } noexcept;
};

/// A backend that can abandon hung batches: `abandon(batch)`, called on the loop's thread, returns
/// whether nothing touches the memory of its requests from now on. The backend keeps the device's
/// other resources until the end of the batch, which must still be reported. Without it, requests
/// of a hung batch end only with the batch.
template <class B>
concept abandoning_backend = backend<B> && requires(B& b, const deferred::batch& x) {
  { b.abandon(x) } noexcept -> std::same_as<bool>;
};

/// A backend that can test whether a device works: `probe(device, model)`, called on the loop's
/// thread for a device without work, runs a small job of the model there, and later calls
/// `complete_probe(device, failed)` of the loop, from any thread. The model stays until then.
template <class B>
concept probing_backend = backend<B> && requires(B& b, device_id d, model_id m) {
  { b.probe(d, m) } noexcept;
};

/// A backend that can ask a hung probe to end: `abandon_probe(device, model)`, called on the loop's
/// thread. The end of the probe must still be reported.
template <class B>
concept probe_abandoning_backend = probing_backend<B> && requires(B& b, device_id d, model_id m) {
  { b.abandon_probe(d, m) } noexcept;
};

/// A backend with devices that are threads of this process: `load_of(device)`, called on the loop's
/// thread for a device with an overdue batch, returns the processor time of these threads.
template <class B>
concept load_telling_backend = backend<B> && requires(B& b, device_id d) {
  { b.load_of(d) } noexcept -> std::same_as<runtime::thread_load>;
};

/// A backend that says `static constexpr bool queues_batches = true`: a device takes a second batch
/// while one runs, and starts it when that one ends. The loop then sends the next batch shortly
/// before the end it expects, so a device need not wait for a late timer. Without it a device has
/// at most one batch for each of its entries.
template <class B>
concept queueing_backend = backend<B> && B::queues_batches;

/// Receives outcomes. Semantics: `deliver` is called once for each accepted request, on the loop's
/// thread and under no lock; from then on the request is the caller's and may be destroyed. It may
/// submit requests. It must be quick. Models: `inline_completion`, `queued_completion`.
template <class C>
concept completion_context = requires(C& c, request& r, outcome how) {
  { c.deliver(r, how) } noexcept;
};

/// Receives reports of ends: `complete(ticket, failed)` for a batch; `complete_request(ticket,
/// request, failed)` for a request that ends before its batch; `complete_probe(device, failed)` for
/// a probe. `nudge(publish)` calls `publish()`, wakes the thread and has the backend's `advance`
/// called. Thread safety: any thread. Models: `basic_engine`, `basic_loop`, `manual_engine`.
template <class E>
concept completion_target =
    requires(E& e, batch_ticket at, bool failed, const request& r, device_id d, void (*publish)()) {
      e.complete(at, failed);
      e.complete_request(at, r, failed);
      e.complete_probe(d, failed);
      e.nudge(publish);
    };

/// Passes a backend's reports of ends to an engine or loop. `bind` it to one, and `unbind` it
/// before that is destroyed: a device may report an abandoned batch much later, and the report is
/// then discarded. Thread safety: any thread.
class end_report {
 public:
  template <completion_target Engine>
  void bind(Engine& engine) noexcept {
    const std::lock_guard lock{mutex_};
    engine_ = &engine;
    end_batch_ = [](void* e, batch_ticket at, bool failed) {
      static_cast<Engine*>(e)->complete(at, failed);
    };
    end_request_ = [](void* e, batch_ticket at, const request& r, bool failed) {
      static_cast<Engine*>(e)->complete_request(at, r, failed);
    };
    end_probe_ = [](void* e, device_id d, bool failed) {
      static_cast<Engine*>(e)->complete_probe(d, failed);
    };
    publish_ = [](void* e, std::atomic<int>& state, int value) {
      static_cast<Engine*>(e)->nudge([&] { state.store(value, std::memory_order_release); });
    };
  }
  /// Stops all reports: none is in progress or starts after this returns.
  void unbind() noexcept {
    const std::lock_guard lock{mutex_};
    engine_ = nullptr;
  }

  /// Reports the end of a batch, `failed` if without results.
  void batch_ended(batch_ticket at, bool failed) const noexcept { tell(end_batch_, at, failed); }
  /// Reports the end of one request of a running batch.
  void request_ended(batch_ticket at, const request& r, bool failed) const noexcept {
    tell(end_request_, at, r, failed);
  }
  /// Reports the end of a probe.
  void probe_ended(device_id d, bool failed) const noexcept { tell(end_probe_, d, failed); }
  /// Calls `listener(device, text)` from now on with the reason why a batch failed, on the thread
  /// that detects it; it must not throw. Set it before adding devices.
  void on_failure(std::function<void(device_id, std::string_view)> listener) {
    listener_ = std::move(listener);
  }
  /// Reports why a batch of the device failed.
  void failure(device_id d, std::string_view text) const noexcept {
    if (listener_) listener_(d, text);
  }
  /// Stores a value for the loop's thread and wakes it.
  void publish(std::atomic<int>& state, int value) const noexcept { tell(publish_, state, value); }

 private:
  template <class... Ts>
  void tell(void (*const& how)(void*, Ts...), auto&&... what) const noexcept {
    const std::lock_guard lock{mutex_};
    if (engine_ != nullptr) how(engine_, what...);
  }

  mutable std::mutex mutex_;
  std::function<void(device_id, std::string_view)> listener_;
  void* engine_ = nullptr;
  void (*end_batch_)(void*, batch_ticket, bool) = nullptr;
  void (*end_request_)(void*, batch_ticket, const request&, bool) = nullptr;
  void (*end_probe_)(void*, device_id, bool) = nullptr;
  void (*publish_)(void*, std::atomic<int>&, int) = nullptr;
};

/// Calls `handler(request&, outcome)` at once, on the loop's thread: for handlers of a microsecond
/// or so, or that post to their own executor. Exceptions are counted and discarded.
template <class Handler>
class inline_completion {
 public:
  explicit inline_completion(Handler handler) : handler_{std::move(handler)} {}

  void deliver(request& r, outcome how) noexcept {
    try {
      handler_(r, how);
    } catch (...) {
      ++failures_;
    }
  }
  /// Number of handler calls that threw.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }

 private:
  Handler handler_;
  std::uint64_t failures_ = 0;
};

/// Keeps outcomes until another thread fetches them: for programs with their own event loop. Thread
/// safety: `deliver` by the loop, `drain_to` by one other thread.
class outcome_queue {
 public:
  struct item {
    request* ended;
    outcome how;
  };

  void push(request& r, outcome how) {
    const std::lock_guard lock{mutex_};
    items_.push_back({&r, how});
  }
  /// Calls `handler(request&, outcome)` for each queued outcome. @returns Their number.
  template <class Handler>
  std::size_t drain_to(Handler&& handler) {
    taken_.clear();
    {
      const std::lock_guard lock{mutex_};
      taken_.swap(items_);
    }
    for (const item& i : taken_) handler(*i.ended, i.how);
    return taken_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<item> items_;
  std::vector<item> taken_;
};

/// Delivers into an `outcome_queue`, which must outlive the engine.
class queued_completion {
 public:
  explicit queued_completion(outcome_queue& queue) noexcept : queue_{&queue} {}
  void deliver(request& r, outcome how) noexcept { queue_->push(r, how); }

 private:
  outcome_queue* queue_;
};
static_assert(completion_context<queued_completion>);

namespace requirement {
template <class S>
concept sink_takes_launches = requires(S& s, const deferred::batch& b) {
  { s.launch(b) } noexcept;
};
/// The sink can release a request of a running batch.
template <class S>
concept sink_cancels_running = requires(S& s, request& r) { s.cancel_running(r); };
/// The sink can make a device release the memory of a hung batch's requests.
template <class S>
concept sink_abandons_batches = requires(S& s, const deferred::batch& b) {
  { s.abandon(b) } noexcept -> std::same_as<bool>;
};
/// The sink is told which requests wait for another batch.
template <class S>
concept sink_hears_of_retries = requires(S& s, request& r) { s.waits_again(r); };
/// The sink can probe a device.
template <class S>
concept sink_probes_devices = requires(S& s, device_id d, model_id m) { s.probe(d, m); };
/// The sink can ask a hung probe to end.
template <class S>
concept sink_abandons_probes = requires(S& s, device_id d, model_id m) { s.abandon_probe(d, m); };
/// The sink knows how much processor time a device's threads have had.
template <class S>
concept sink_tells_loads = requires(S& s, device_id d) {
  { s.load_of(d) } noexcept -> std::same_as<runtime::thread_load>;
};
}  // namespace requirement

/// Carries out an engine core's decisions, during the core's own calls and on their thread:
/// * `launch(const deferred::batch&)`: run the batch on its device; the object stays valid until
///   its `on_complete`. One of the device's entries is idle, unless the core was told to
///   `send_ahead`: then it may still run a batch, behind which this one must start.
/// * `ended(request&, outcome)`: the request's one outcome. It is unlinked and idle: the caller may
///   destroy it or submit it again.
/// * `model_removed(model_id)`: the last request of a removed model has ended. Optional members:
/// * `cancel_running(request&)`: a request of a running batch was cancelled; it may end before its
///   batch, by `on_request_complete`.
/// * `abandon(const deferred::batch&)`: returns whether the memory of a hung batch's requests is no
///   longer used; the requests then end. The device keeps its other resources until the batch ends,
///   which must still be reported. If false, it is asked again.
/// * `waits_again(request&)`: the request's batch failed or hung, and it waits for another one.
/// * `probe(device_id, model_id)`: run a small job of the model on a device without work, and call
///   `on_probe`. The model is not removed meanwhile. Without this member requests serve as probes.
/// * `abandon_probe(device_id, model_id)`: that probe hangs. End it if possible; its end must still
///   be reported.
/// * `load_of(device_id)`: a `runtime::thread_load` of the threads that run its batches, so that a
///   late device that lacks processor time does not count as hung. Without it only time decides.
///   Must not call back into the core or throw. Models: `basic_loop`, `sim::simulation`.
template <class S>
concept engine_sink =
    requirement::sink_takes_launches<S> && requires(S& s, request& r, outcome how, model_id id) {
      { s.ended(r, how) } noexcept;
      { s.model_removed(id) } noexcept;
    };

}  // namespace cohort::engine
