// SPDX-License-Identifier: Apache-2.0
/// @file
/// The requirements of engines, loops and simulations on a scheduler: the `batch_scheduler`
/// concept.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/model_shard.hpp>

#include <concepts>
#include <cstdint>
#include <utility>

namespace cohort::deferred {

namespace requirement {
/// Stands for any sink in concept checks. Never defined.
struct any_scheduler_sink {
  void dispatch(batch&&) noexcept;
  void drop(request&) noexcept;
};

template <class S>
concept scheduler_answers_for_models = requires(const S& s, model_id id, time_point at) {
  { s.models().is_full(id) } noexcept -> std::same_as<bool>;
  { s.models().is_feasible(id, at, at) } noexcept -> std::same_as<bool>;
  { s.models().least_time(id) } noexcept -> std::same_as<duration>;
};
template <class S>
concept scheduler_foresees = requires(S& s, const request& r, time_point now) {
  { s.on_refused(r, now) } noexcept;
} && requires(const S& s, model_id id) {
  { s.next_free(id) } noexcept -> std::same_as<time_point>;
  { s.models().queued_requests(id) } noexcept -> std::same_as<std::uint32_t>;
  { s.models().target(id) } noexcept -> std::same_as<std::uint32_t>;
  { s.models().latency(id).run() } -> std::same_as<const latency_curve&>;
  { s.models().latency(id).sent() } -> std::same_as<const latency_curve&>;
  { s.models().usual_excess(id, std::uint32_t{}) } noexcept -> std::same_as<duration>;
};
}  // namespace requirement

/// Decides when each batch starts, which requests it contains and on which device it runs. A value:
/// it owns no thread and reads no clock; a driver tells it the time, and calls `advance` at
/// `next_wake()` and after every event. It reports decisions to the `scheduler_sink` passed to the
/// call. Semantics:
/// * `add_model(config)` and `add_device(now)` return the smallest free id. Only they may allocate
///   and throw `config_error`. They may take more arguments (a pool, a capacity). `capacity(d)` is
///   the number of batches that the device may run at one time, its entries.
/// * `remove_model(id, now, sink)` drops the waiting requests; running batches continue. After
///   `remove_device(d, now)` the device gets no more work. `set_in_service(d, whether, now)`
///   suspends or resumes work for a present device.
/// * `on_arrival(request, now, sink)`: the request's model must be served and not full. From then
///   on the request is linked, until it is dropped, cancelled or taken out of its batch.
/// * `on_cancel(request, now, sink)` returns whether the request was still queued; if so it is
///   idle, and the sink is not told. If not, it is in a batch.
/// * `on_complete(entry, now, failed)`: the oldest batch of that device entry ended, without
///   results if it failed. An entry has at most `rank::entry_depth` batches.
/// * `models()` answers questions about served models: `is_full(id)`, `is_feasible(id, deadline,
///   now)`, and `least_time(id)`, the shortest time from arrival to deadline that a request needs.
///   Within one instant: arrivals, then completions, then `advance`. Deterministic: the same calls
///   give the same decisions. Thread safety: none. Models: `basic_scheduler`,
///   `basic_pooled_scheduler`.
template <class S>
concept batch_scheduler = std::move_constructible<S> &&
                          requires(S& s, model_config c, model_id id, time_point now,
                                   requirement::any_scheduler_sink& sink, device_id d, request& r,
                                   device_entry at, bool failed) {
                            { s.add_model(std::move(c)) } -> std::same_as<model_id>;
                            { s.remove_model(id, now, sink) } noexcept;
                            { s.add_device(now) } -> std::same_as<device_id>;
                            { s.remove_device(d, now) } noexcept;
                            { s.set_in_service(d, true, now) } noexcept;
                            { s.on_arrival(r, now, sink) } noexcept;
                            { s.on_cancel(r, now, sink) } noexcept -> std::same_as<bool>;
                            { s.on_complete(at, now, failed) } noexcept;
                            { s.advance(now, sink) } noexcept;
                          } &&
                          requires(const S& s, device_id d) {
                            { s.capacity(d) } noexcept -> std::same_as<std::uint32_t>;
                            { s.next_wake() } noexcept -> std::same_as<time_point>;
                          } && requirement::scheduler_answers_for_models<S>;

/// A batch scheduler that an engine can ask for a request's chances on arrival, to refuse it then
/// instead of dropping it later. It has `next_free(id)`, when a device for the model should be
/// free; its `models()` also gives the number of waiting requests, the target batch size, the
/// latencies and how far they exceed usual batch times. `on_refused(request, now)`: the request
/// counts as an arrival but is not given to the scheduler.
template <class S>
concept foreseeing_scheduler = batch_scheduler<S> && requirement::scheduler_foresees<S>;

}  // namespace cohort::deferred
