// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an engine asks of those it joins: of what runs batches (`backend`, which reports their ends
/// to a `completion_target`), of where outcomes go (`completion_context`), and what its core asks
/// of the loop (`engine_sink`).
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

/// A device of an engine, as its backend makes it.
struct device_spec {
  device_id gpu{};             ///< Which of the backend's executors runs it.
  device_share share{};        ///< Of that GPU's compute.
  std::uint32_t capacity = 1;  ///< As the scheduler is told: batches at one time; at least 1.
};

/// Runs batches. Semantics: `launch` starts the batch on its device behind what its entry has, does
/// not block, and later calls `complete(batch.at(), failed)` of the loop once, from any thread;
/// batches of an entry complete in order, those of different entries in any. What is told of a
/// batch once more is ignored, if it is told by that name, and not by the entry alone. It may
/// report requests of a batch before, one by one, with `complete_request`. Called on the loop's
/// thread. If it throws, the batch has failed, and it must not report it. One that has `unbind()`
/// hears of the end of the loop: from then on it must report nothing. Models: `executor_backend`,
/// `profile_backend`.
template <class B>
concept backend = requires(B& b, const deferred::batch& x) { b.launch(x); };

/// A backend that is itself driven by time: `next_event()` and `advance(now)`, called by the loop.
template <class B>
concept driven_backend = backend<B> && requires(B& b, time_point now) {
  { b.next_event() } -> std::same_as<time_point>;
  b.advance(now);
};

/// A backend that can end a request of a batch before the batch: `cancel(request)`, called on the
/// loop's thread for one that is in a batch; it may do nothing.
template <class B>
concept cancelling_backend = backend<B> && requires(B& b, const request& r) {
  { b.cancel(r) } noexcept;
};

/// A backend that lets go of batches that hang: `abandon(batch)`, called on the loop's thread, says
/// whether from now on nothing touches the memory of its requests; what else the device has of it
/// stays the backend's until the end of the batch, which is still to be reported. Without it the
/// requests of a batch that hangs have no end before it has.
template <class B>
concept abandoning_backend = backend<B> && requires(B& b, const deferred::batch& x) {
  { b.abandon(x) } noexcept -> std::same_as<bool>;
};

/// A backend that can try whether a device works: `probe(device, model)`, called on the loop's
/// thread for one without work, runs something small of the model there, which stays meanwhile, and
/// later calls `complete_probe(device, failed)` of the loop, from any thread.
template <class B>
concept probing_backend = backend<B> && requires(B& b, device_id d, model_id m) {
  { b.probe(d, m) } noexcept;
};

/// A backend that can ask a probe that hangs to end: `abandon_probe(device, model)`, called on the
/// loop's thread. The probe's end is still to be reported.
template <class B>
concept probe_abandoning_backend = probing_backend<B> && requires(B& b, device_id d, model_id m) {
  { b.abandon_probe(d, m) } noexcept;
};

/// A backend whose devices are threads of this process: `load_of(device)`, called on the loop's
/// thread for one that has a batch for too long, says what these threads have had of the
/// processors.
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

/// Where outcomes go. Semantics: `deliver` is called once for each accepted request, on the loop's
/// thread and under no lock; from then on the request is the caller's and may be destroyed. It may
/// submit requests. It must be quick. Models: `inline_completion`, `queued_completion`.
template <class C>
concept completion_context = requires(C& c, request& r, outcome how) {
  { c.deliver(r, how) } noexcept;
};

/// What hears of ends: `complete(ticket, failed)`, a batch has ended; `complete_request(ticket,
/// request, failed)`, a request that ends before its batch; `complete_probe(device, failed)`, a
/// probe; and whose thread can be woken: `nudge(publish)` calls
/// `publish()` and then has the backend's `advance` called. Thread safety: any thread. Models:
/// `basic_engine`, `basic_loop`, `manual_engine`.
template <class E>
concept completion_target =
    requires(E& e, batch_ticket at, bool failed, const request& r, device_id d, void (*publish)()) {
      e.complete(at, failed);
      e.complete_request(at, r, failed);
      e.complete_probe(d, failed);
      e.nudge(publish);
    };

/// Where a backend reports ends; `bind` it to the engine or loop, and `unbind` it before that goes:
/// a device may tell of a batch that was given up much later, and then tells nobody. Thread safety:
/// any thread.
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
  /// When it returns nobody is being told anything, nor will be.
  void unbind() noexcept {
    const std::lock_guard lock{mutex_};
    engine_ = nullptr;
  }

  /// `failed` if without results.
  void batch_ended(batch_ticket at, bool failed) const noexcept { tell(end_batch_, at, failed); }
  /// A request of a batch that goes on.
  void request_ended(batch_ticket at, const request& r, bool failed) const noexcept {
    tell(end_request_, at, r, failed);
  }
  /// A probe of a device.
  void probe_ended(device_id d, bool failed) const noexcept { tell(end_probe_, d, failed); }
  /// From now on `listener(device, text)` hears why batches fail, on the thread that finds out; it
  /// must not throw. Before there are devices.
  void on_failure(std::function<void(device_id, std::string_view)> listener) {
    listener_ = std::move(listener);
  }
  /// Why a batch of the device fails.
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
/// or so, or that post to an executor of their own. An exception ends with the handler: it is
/// counted, and nobody else hears of it.
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
  /// Handlers that threw.
  [[nodiscard]] std::uint64_t failures() const noexcept { return failures_; }

 private:
  Handler handler_;
  std::uint64_t failures_ = 0;
};

/// Keeps outcomes until another thread asks for them: for programs with an event loop of their own.
/// Thread safety: `deliver` by the loop, `drain_to` by one other thread.
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
  /// Calls `handler(request&, outcome)` for each outcome there is. @returns How many.
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
/// It can let a request go whose batch is at work.
template <class S>
concept sink_cancels_running = requires(S& s, request& r) { s.cancel_running(r); };
/// It can have a device leave the memory of requests alone whose batch hangs.
template <class S>
concept sink_abandons_batches = requires(S& s, const deferred::batch& b) {
  { s.abandon(b) } noexcept -> std::same_as<bool>;
};
/// It wants to know who of a batch waits for another one.
template <class S>
concept sink_hears_of_retries = requires(S& s, request& r) { s.waits_again(r); };
/// It can try whether a device works.
template <class S>
concept sink_probes_devices = requires(S& s, device_id d, model_id m) { s.probe(d, m); };
/// It can ask a probe that hangs to end.
template <class S>
concept sink_abandons_probes = requires(S& s, device_id d, model_id m) { s.abandon_probe(d, m); };
/// It knows what the threads of a device have had of the processors.
template <class S>
concept sink_tells_loads = requires(S& s, device_id d) {
  { s.load_of(d) } noexcept -> std::same_as<runtime::thread_load>;
};
}  // namespace requirement

/// Carries out what an engine core decides, during the core's own calls and on their thread:
/// * `launch(const deferred::batch&)`: run the batch on its device; it stays where it is until
///   `on_complete` for it. The device is idle, or one of its entries is, unless the core was told
///   to `send_ahead`: then it may still run a batch, behind which this one is to start.
/// * `ended(request&, outcome)`: the request's one outcome. It is unlinked and idle: the caller's
///   again, and may be destroyed or submitted anew later.
/// * `model_removed(model_id)`: the last request of a removed model has ended.
/// It may have more:
/// * `cancel_running(request&)`: a request of a batch at work is not wanted any more; it may end
///   before its batch, by `on_request_complete`.
/// * `abandon(const deferred::batch&)`, whether from now on nobody touches the memory of the
///   requests of a batch that hangs; they end then, while the device keeps all else that it has of
///   the batch, whose end is still to be told. If not now, it is asked again.
/// * `waits_again(request&)`: of a batch that failed or hangs; it waits for another one.
/// * `probe(device_id, model_id)`: run something small of the model, which is not removed
///   meanwhile, on a device without work, and tell `on_probe`. Without it requests are the probes.
/// * `abandon_probe(device_id, model_id)`: that probe hangs. End it if you can; its end is still to
///   be told.
/// * `load_of(device_id)`, a `runtime::thread_load` of the threads that run its batches: a late
///   device that lacks processors does not hang. Without it time alone decides.
/// Must not call back into the core, and must
/// not throw. Models: `basic_loop`, `sim::simulation`.
template <class S>
concept engine_sink =
    requirement::sink_takes_launches<S> && requires(S& s, request& r, outcome how, model_id id) {
      { s.ended(r, how) } noexcept;
      { s.model_removed(id) } noexcept;
    };

}  // namespace cohort::engine
