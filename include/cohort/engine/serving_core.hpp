// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a loop needs of the core that it drives: the `serving_core` concept.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>

#include <concepts>
#include <cstddef>
#include <optional>
#include <utility>

namespace cohort::engine {

namespace requirement {
/// Stands for every sink where only the form of a call is asked. Never defined.
struct any_engine_sink {
  void launch(const deferred::batch&) noexcept;
  void ended(request&, outcome) noexcept;
  void model_removed(model_id) noexcept;
};

template <class C>
concept core_adds_models = requires(C& c, model_config config) {
  { c.add_model(std::move(config)) } -> std::same_as<model_id>;
};
template <class C>
concept core_removes_models = requires(C& c, model_id id, time_point now, any_engine_sink& sink) {
  { c.remove_model(id, now, sink) } noexcept;
};
template <class C>
concept core_adds_devices = requires(C& c, time_point now) {
  { c.add_device(now) } -> std::same_as<device_id>;
};
template <class C>
concept core_removes_devices = requires(C& c, device_id d, time_point now) {
  { c.remove_device(d, now) } noexcept;
};
template <class C>
concept core_takes_requests = requires(C& c, request& r, time_point now, any_engine_sink& sink) {
  { c.submit(r, now, sink) } noexcept -> std::same_as<std::optional<refusal>>;
};
template <class C>
concept core_cancels_requests = requires(C& c, request& r, time_point now, any_engine_sink& sink) {
  { c.cancel(r, now, sink) } noexcept;
};
template <class C>
concept core_takes_completions = requires(C& c, batch_ticket at, const request& only, bool failed,
                                          time_point now, any_engine_sink& sink) {
  { c.on_complete(at, failed, now, sink) } noexcept;
  { c.on_request_complete(at, only, failed, now, sink) } noexcept;
  { c.on_probe(at.device, failed, now, sink) } noexcept;
};
template <class C>
concept core_advances = requires(C& c, time_point now, any_engine_sink& sink) {
  { c.advance(now, sink) } noexcept;
};
template <class C>
concept core_tells_next_wake = requires(const C& c) {
  { c.next_wake() } noexcept -> std::same_as<time_point>;
};
template <class C>
concept core_counts_requests = requires(const C& c) {
  { c.in_flight() } noexcept -> std::same_as<std::size_t>;
};
template <class C>
concept core_tells_least_time = requires(const C& c, model_id id) {
  { c.scheduler().models().least_time(id) } noexcept -> std::same_as<duration>;
};
template <class C>
concept core_tells_of_devices = requires(const C& c, model_id id) {
  { c.has_device(id) } noexcept -> std::same_as<bool>;
  { c.service_changes() } noexcept -> std::same_as<std::uint64_t>;
};
}  // namespace requirement

/// The life of requests as a value that a loop drives: admission, batches at work, outcomes. It
/// talks to the `engine_sink` of each call. Semantics: those of `basic_engine_core`, the one model;
/// the concept is what a core of one's own must have. `add_*` may allocate and throw
/// `config_error`; nothing else does either. Thread safety: none.
template <class C>
concept serving_core =
    std::move_constructible<C> && requirement::core_adds_models<C> &&
    requirement::core_removes_models<C> && requirement::core_adds_devices<C> &&
    requirement::core_removes_devices<C> && requirement::core_takes_requests<C> &&
    requirement::core_cancels_requests<C> && requirement::core_takes_completions<C> &&
    requirement::core_advances<C> && requirement::core_tells_next_wake<C> &&
    requirement::core_counts_requests<C> && requirement::core_tells_least_time<C> &&
    requirement::core_tells_of_devices<C>;
static_assert(serving_core<engine_core>);

}  // namespace cohort::engine
