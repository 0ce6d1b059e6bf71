// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an engine core tells whoever runs its batches: the `engine_sink` concept.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/request.hpp>
#include <cohort/deferred/candidate.hpp>

namespace cohort::engine {

namespace requirement {
template <class S>
concept sink_takes_launches = requires(S& s, const deferred::batch& b) {
  { s.launch(b) }
  noexcept;
};
template <class S>
concept sink_takes_outcomes = requires(S& s, request& r, outcome how) {
  { s.ended(r, how) }
  noexcept;
};
template <class S>
concept sink_hears_of_removed_models = requires(S& s, model_id id) {
  { s.model_removed(id) }
  noexcept;
};
/// It can let a request go whose batch is at work.
template <class S>
concept sink_cancels_running = requires(S& s, request& r) {
  s.cancel_running(r);
};
}  // namespace requirement

/// Carries out what an engine core decides, during the core's own calls and on their thread:
/// * `launch(const deferred::batch&)`: run the batch on its device behind what it has; it stays
///   where it is until `on_complete` for it.
/// * `ended(request&, outcome)`: the request's one outcome. It is unlinked and idle: the caller's
///   again, and may be destroyed or submitted anew later.
/// * `model_removed(model_id)`: the last request of a removed model has ended.
/// It may have `cancel_running(request&)`: a request of a batch at work is not wanted any more; it
/// may end before its batch, by `on_request_complete`. Must not call back into the core, and must
/// not throw. Models: `basic_loop`, `sim::simulation`.
template <class S>
concept engine_sink = requirement::sink_takes_launches<S> && requirement::sink_takes_outcomes<S> &&
    requirement::sink_hears_of_removed_models<S>;

}  // namespace cohort::engine
