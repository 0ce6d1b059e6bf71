// SPDX-License-Identifier: Apache-2.0
/// @file
/// Carries out a model thread's decisions: `shard_desk`, `requests_desk`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>

namespace cohort::engine {

/// Carries out a model thread's decisions on that thread: a `deferred::scheduler_sink` with
/// `cancelled(request&)`: the request is idle and the caller's again. Must not throw or block.
template <class D>
concept shard_desk = deferred::scheduler_sink<D> && requires(D& d, request& r) {
  { d.cancelled(r) } noexcept;
};

/// A desk to which requests return when their batches have ended (`shard_thread::give_back`), so
/// that they can be cancelled while running, or wait for another batch. Most calls take the half
/// that has the model, and the time:
/// * `on_model(id, half)`: this shard has the model from now on;
/// * `refuses(request&, half, now)`: why an arrival may not wait, if it may not; then
///   `refused(request&, why)` follows;
/// * `runs_again(request&, failed, half, now)`: whether a request that ran is retried. If not,
///   `ended(request&, failed, now)` follows; `waits_again(request&)`: it is retried, or has not
///   run;
/// * `dispatch(batch&&, half, now)` and `drop(request&, half, now)` replace those of the sink.
template <class D, class Half>
concept requests_desk =
    requires(D& d, request& r, Half& half, deferred::batch&& b, time_point now, refusal why) {
      d.on_model(r.model, half);
      { d.refuses(r, half, now) } noexcept -> std::same_as<std::optional<refusal>>;
      d.refused(r, why);
      { d.runs_again(r, true, half, now) } noexcept -> std::same_as<bool>;
      d.waits_again(r);
      d.ended(r, true, now);
      d.cancelled(r);
      d.dispatch(std::move(b), half, now);
      d.drop(r, half, now);
    };

/// Some or all requests of a batch that has ended.
struct returned_requests {
  model_id model;
  bool failed = false;
  bool has_run = true;  ///< If false, their device was removed before they ran, and they wait on.
  request_list requests;
};

/// The desk of a shard: what `backend.desk(shard)` returns, else the backend.
template <class Backend>
[[nodiscard]] auto& desk_of(Backend& backend, [[maybe_unused]] std::uint32_t shard) noexcept {
  if constexpr (requires { backend.desk(shard); }) {
    return backend.desk(shard);
  } else {
    return backend;
  }
}

}  // namespace cohort::engine
