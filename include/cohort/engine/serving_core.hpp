// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface that a loop requires of its core: the `serving_core` concept.
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
/// Stands for any sink in concept checks. Never defined.
struct any_engine_sink {
  void launch(const deferred::batch&) noexcept;
  void ended(request&, outcome) noexcept;
  void model_removed(model_id) noexcept;
};

}  // namespace requirement

/// The life of requests as a value that a loop drives: admission, batches at work, outcomes. It
/// talks to the `engine_sink` of each call. Semantics: those of `basic_engine_core`, its one model;
/// a custom core must satisfy this concept. `add_*` may allocate and throw `config_error`; nothing
/// else does either. Thread safety: none.
template <class C>
concept serving_core = std::move_constructible<C> &&
                       requires(C& c, model_config config, model_id id, time_point now,
                                requirement::any_engine_sink& sink, device_id d, request& r,
                                batch_ticket at, const request& only, bool failed) {
                         { c.add_model(std::move(config)) } -> std::same_as<model_id>;
                         { c.remove_model(id, now, sink) } noexcept;
                         { c.add_device(now) } -> std::same_as<device_id>;
                         { c.remove_device(d, now) } noexcept;
                         {
                           c.submit(r, now, sink)
                         } noexcept -> std::same_as<std::optional<refusal>>;
                         { c.cancel(r, now, sink) } noexcept;
                         { c.on_complete(at, failed, now, sink) } noexcept;
                         { c.on_request_complete(at, only, failed, now, sink) } noexcept;
                         { c.on_probe(at.device, failed, now, sink) } noexcept;
                         { c.advance(now, sink) } noexcept;
                       } &&
                       requires(const C& c, model_id id) {
                         { c.next_wake() } noexcept -> std::same_as<time_point>;
                         { c.in_flight() } noexcept -> std::same_as<std::size_t>;
                         {
                           c.scheduler().models().least_time(id)
                         } noexcept -> std::same_as<duration>;
                         { c.has_device(id) } noexcept -> std::same_as<bool>;
                         { c.service_changes() } noexcept -> std::same_as<std::uint64_t>;
                       };
static_assert(serving_core<engine_core>);

}  // namespace cohort::engine
