// SPDX-License-Identifier: Apache-2.0
/// @file
/// What schedulers, shards and ranks tell whoever carries out their decisions: `scheduler_sink`,
/// `shard_sink` and `rank_sink`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/view.hpp>

#include <concepts>
#include <utility>

namespace cohort::deferred {

namespace requirement {
template <class S>
concept sink_takes_batches = requires(S& s, batch&& b) {
  { s.dispatch(std::move(b)) } noexcept;
};
template <class S>
concept sink_takes_drops = requires(S& s, request& r) {
  { s.drop(r) } noexcept;
};
template <class S>
concept sink_takes_candidates = requires(S& s, model_id id, const candidate& c) {
  { s.candidate_changed(id, c) } noexcept;
};
template <class S>
concept sink_hears_of_used_grants =
    requires(S& s, model_id id, device_id d, time_point exec_at, duration expected) {
      { s.grant_used(id, d, exec_at, expected) } noexcept;
    };
template <class S>
concept sink_hears_of_returned_grants = requires(S& s, model_id id, device_id d) {
  { s.grant_returned(id, d) } noexcept;
};
template <class S>
concept sink_tells_of_pools = requires(const S& s, model_id id) {
  { s.pool(id) } noexcept -> std::same_as<pool_view>;
};
template <class S>
concept sink_takes_grants = requires(S& s, const grant& g) {
  { s.grant(g) } noexcept;
};
template <class S>
concept sink_hears_what_waits = requires(S& s, model_id id) {
  { s.waits(id) } noexcept;
};
}  // namespace requirement

/// Carries out a scheduler's decisions, during the scheduler's own calls and on their thread:
/// * `dispatch(batch&&)`: run this on its device, behind what it has; later `on_complete`.
/// * `drop(request&)`: the request can no longer be in time; it is idle and the caller's again, and
///   may be destroyed.
/// Must not call back into the scheduler, and must not throw: it is called in the middle of a
/// decision. Models: the sinks of `engine::basic_engine_core`.
template <class S>
concept scheduler_sink = requirement::sink_takes_batches<S> && requirement::sink_takes_drops<S>;

/// Hears a model shard: what a scheduler's sink does, and the shard's side of the talk with a rank.
/// * `candidate_changed(model_id, const candidate&)`: replaces the model's candidate; an empty one
///   removes it.
/// * `grant_used(model_id, device_id, time_point exec_at, duration expected)`, after the `dispatch`
///   of its batch, or `grant_returned(model_id, device_id)`: the answer to every grant, exactly
///   one.
/// * `pool(model_id)`: what the rank measures now of the devices that the model may run on.
/// Must not call back into the shard, and must not throw. Models: inside `basic_scheduler` and
/// `basic_pooled_scheduler`.
template <class S>
concept shard_sink =
    scheduler_sink<S> && requirement::sink_takes_candidates<S> &&
    requirement::sink_hears_of_used_grants<S> && requirement::sink_hears_of_returned_grants<S> &&
    requirement::sink_tells_of_pools<S>;

/// The sink of a shard that is told by `basic_model_shard::on_waiting` when a window has opened and
/// no device was free: until then the shard need not keep time for the candidate. It has a constant
/// `tells_what_waits`, true. A shard on a thread of its own is not told.
template <class S>
concept telling_what_waits = shard_sink<S> && S::tells_what_waits;

/// Hears a rank, and must not throw. Models: inside `basic_scheduler` and `basic_pooled_scheduler`.
/// * `grant(const grant&)` offers a device to a model, and is answered, once, by `on_grant_used` or
///   `on_grant_returned`: during the call or later.
/// * `waits(model_id)`: the window of its candidate has opened, and no device is free.
template <class S>
concept rank_sink = requirement::sink_takes_grants<S> && requirement::sink_hears_what_waits<S>;

}  // namespace cohort::deferred
