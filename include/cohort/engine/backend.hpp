// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an engine's loop asks of those it joins: who runs batches (`backend`, and what more one may
/// be able to do), and where outcomes go (`completion_context`).
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <concepts>

namespace cohort::engine {

namespace requirement {
template <class B>
concept launches_batches = requires(B& b, const deferred::batch& x) { b.launch(x); };
template <class C>
concept delivers_outcomes = requires(C& c, request& r, outcome how) {
  { c.deliver(r, how) } noexcept;
};
}  // namespace requirement

/// Runs batches. Semantics: `launch` starts the batch on its device behind what its entry has, does
/// not block, and later calls `complete(batch.at(), failed)` of the loop once, from any thread;
/// batches of an entry complete in order, those of different entries in any. What is told of a
/// batch once more is ignored, if it is told by that name, and not by the entry alone. It may
/// report requests of a batch before, one by one, with `complete_request`. Called on the loop's
/// thread. If it throws, the batch has failed, and it must not report it. One that has `unbind()`
/// hears of the end of the loop: from then on it must report nothing. Models: `executor_backend`,
/// `profile_backend`.
template <class B>
concept backend = requirement::launches_batches<B>;

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
concept completion_context = requirement::delivers_outcomes<C>;

}  // namespace cohort::engine
