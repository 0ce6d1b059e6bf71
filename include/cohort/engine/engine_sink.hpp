// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an engine core tells whoever runs its batches: the `engine_sink` concept.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/runtime/thread_load.hpp>

#include <concepts>

namespace cohort::engine {

namespace requirement {
template <class S>
concept sink_takes_launches = requires(S& s, const deferred::batch& b) {
  { s.launch(b) } noexcept;
};
template <class S>
concept sink_takes_outcomes = requires(S& s, request& r, outcome how) {
  { s.ended(r, how) } noexcept;
};
template <class S>
concept sink_hears_of_removed_models = requires(S& s, model_id id) {
  { s.model_removed(id) } noexcept;
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
concept engine_sink = requirement::sink_takes_launches<S> && requirement::sink_takes_outcomes<S> &&
                      requirement::sink_hears_of_removed_models<S>;

}  // namespace cohort::engine
