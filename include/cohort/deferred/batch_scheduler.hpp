// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an engine, a loop and a simulation need of a scheduler: the `batch_scheduler` concept.
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
/// Stands for every sink where only the form of a call is asked. Never defined.
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

/// Decides when each batch starts, who is in it and on which device. A value: it owns no thread and
/// reads no clock; a driver tells it the time, and calls `advance` at `next_wake()` and after every
/// event. What it decides it tells the `scheduler_sink` of the call. Semantics:
/// * `add_model(config)` and `add_device(now)` give the smallest id that is free. They may allocate
///   and throw `config_error`; nothing else does either. They may take more arguments (a pool, a
///   capacity). `capacity(d)` is how many batches the device may run at one time, its entries.
/// * `remove_model(id, now, sink)` drops what waits; batches at work go on.
///   `remove_device(d, now)`: it gets no more work. `set_in_service(d, whether, now)`: a device
///   that is there gets none for a while.
/// * `on_arrival(request, now, sink)`: of a model that is served and not full. From then on the
///   request is linked, until it is dropped, cancelled or taken out of its batch.
/// * `on_cancel(request, now, sink)`: whether it was still queued; then it is idle, and the sink is
///   not told. If not, it is in a batch.
/// * `on_complete(entry, now, failed)`: the oldest batch of that entry of a device ended, if failed
///   without results. An entry has at most `rank::entry_depth` batches.
/// * `models()` answers for the models that are served: `is_full(id)`, `is_feasible(id, deadline,
///   now)`, and `least_time(id)`, the least time from arrival to deadline that a request needs.
/// Within one instant: arrivals, then completions, then `advance`. Deterministic: the same calls
/// give the same decisions. Thread safety: none. Models: `basic_scheduler`,
/// `basic_pooled_scheduler`.
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

/// A batch scheduler of which an engine can ask what the chances of a request are when it arrives,
/// so that it is refused then and not dropped later: `next_free(id)`, when a device for the model
/// should be free; of `models()`, how many requests wait, the batch size that the model protects,
/// its latencies, and how much longer they are than what batches usually take. `on_refused(request,
/// now)`: it came, and counts as an arrival, but is not given to the scheduler.
template <class S>
concept foreseeing_scheduler = batch_scheduler<S> && requirement::scheduler_foresees<S>;

}  // namespace cohort::deferred
