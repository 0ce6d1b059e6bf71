// SPDX-License-Identifier: Apache-2.0
/// @file
/// The messages between model shards, the rank and devices (candidates, grants and batches), and
/// the sinks that receive them: `scheduler_sink`, `shard_sink` and `rank_sink`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/observer.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/view.hpp>

#include <concepts>
#include <cstdint>
#include <utility>

namespace cohort::deferred {

/// The batch that a model would send, as the rank needs to know it. Source: Symphony, Algorithm 1
/// and Appendix D.
struct candidate {
  std::uint32_t size = 0;  ///< Requests; 0: the model has nothing to send.
  time_point exec_at;      ///< When the window opens on the device; may be in the past.
  time_point latest;       ///< Latest start on the device that meets the earliest deadline.
  duration lead{0};        ///< Wake up this long before the start.
  duration margin{0};      ///< Part of the lead that allows for waking up late.
  time_point urgency;      ///< Smaller is served first.

  [[nodiscard]] bool is_empty() const noexcept { return size == 0; }
  /// Earliest time to send it.
  [[nodiscard]] time_point send_at() const noexcept { return exec_at - lead; }
  /// Latest time to send it.
  [[nodiscard]] time_point send_by() const noexcept { return latest - (lead - margin); }
  friend bool operator==(const candidate&, const candidate&) = default;
};

/// The rank's offer of an entry of a device to a model. At most one is outstanding for a model.
struct grant {
  model_id model;
  device_id device;
  time_point free_at;       ///< When the entry's present work ends; in the past if it is idle.
  pool_view pool{};         ///< The rank's measurements.
  std::uint32_t entry = 0;  ///< Entry of the device.
  double slowness = 1;      ///< Learned ratio of batch times there to usual ones.
};

/// A batch on its way to a device.
struct batch {
  model_id model;
  device_id device;
  std::uint32_t entry = 0;       ///< Entry of the device: see `at`.
  request_list requests;         ///< Earliest deadline first; at least one.
  std::uint64_t first_sequence;  ///< Sequence number of the first.
  time_point exec_at;            ///< Planned start on the device.
  time_point latest;             ///< Latest start that meets the earliest deadline.
  duration expected;             ///< Longest expected run time: ℓ(size), times c on capacity c.
  duration work{0};              ///< ℓ(size).
  std::uint64_t number = 0;      ///< Assigned by the engine; see `batch_ticket`.

  /// The ticket under which the end of the batch is reported.
  [[nodiscard]] batch_ticket at() const noexcept { return {device, entry, number}; }
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(requests.size());
  }
  /// The batch as observers see it.
  [[nodiscard]] dispatch_event event() const noexcept {
    return {.model = model,
            .device = device,
            .size = size(),
            .first_sequence = first_sequence,
            .exec_at = exec_at,
            .latest = latest,
            .expected = expected,
            .work = work};
  }
};

/// Carries out a scheduler's decisions, during the scheduler's own calls and on their thread:
/// * `dispatch(batch&&)`: run this on its device, behind its present work; call `on_complete`
///   later.
/// * `drop(request&)`: the request can no longer be in time; it is idle and the caller's again, and
///   may be destroyed. Must not call back into the scheduler or throw: it is called in the middle
///   of a decision. Models: the sinks of `engine::basic_engine_core`.
template <class S>
concept scheduler_sink = requires(S& s, batch&& b, request& r) {
  { s.dispatch(std::move(b)) } noexcept;
  { s.drop(r) } noexcept;
};

/// Receives a model shard's decisions: as a scheduler's sink, and the shard's messages to a rank.
/// * `candidate_changed(model_id, const candidate&)`: replaces the model's candidate; an empty one
///   removes it.
/// * `grant_used(model_id, device_id, time_point exec_at, duration expected)`, after the `dispatch`
///   of its batch, or `grant_returned(model_id, device_id)`: exactly one of them answers each
///   grant.
/// * `pool(model_id)`: the rank's present measurements of the devices that the model may run on.
///   Must not call back into the shard or throw. Models: inside `basic_scheduler` and
///   `basic_pooled_scheduler`.
template <class S>
concept shard_sink = scheduler_sink<S> &&
                     requires(S& s, model_id id, const candidate& c, device_id d,
                              time_point exec_at, duration expected) {
                       { s.candidate_changed(id, c) } noexcept;
                       { s.grant_used(id, d, exec_at, expected) } noexcept;
                       { s.grant_returned(id, d) } noexcept;
                     } &&
                     requires(const S& s, model_id id) {
                       { s.pool(id) } noexcept -> std::same_as<pool_view>;
                     };

/// The sink of a shard that learns from `basic_model_shard::on_waiting` when a window has opened
/// and no device was free; until then the shard needs no timer for the candidate. Such a sink has a
/// constant `tells_what_waits`, true. A shard on its own thread gets no such message.
template <class S>
concept telling_what_waits = shard_sink<S> && S::tells_what_waits;

/// Receives a rank's decisions; must not throw. Models: inside `basic_scheduler` and
/// `basic_pooled_scheduler`.
/// * `grant(const grant&)` offers a device to a model. `on_grant_used` or `on_grant_returned`
///   answers it once, during the call or later.
/// * `waits(model_id)`: the window of the model's candidate has opened, and no device is free.
template <class S>
concept rank_sink = requires(S& s, const grant& g, model_id id) {
  { s.grant(g) } noexcept;
  { s.waits(id) } noexcept;
};

}  // namespace cohort::deferred
