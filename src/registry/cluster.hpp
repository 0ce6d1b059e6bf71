// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ways to route requests to many machines, by name, and one run under any of them. Their table
/// is in cluster.cpp.
#pragma once

#include <cohort/sim/cluster/text_cluster.hpp>
#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include "name_list.hpp"
#include "policy.hpp"

namespace cohort::registry {

/// The values of --routes.
[[nodiscard]] const name_list& route_names();

/// A route, with the batching policy of those that batch: the picker's own or its endpoints'.
struct route_choice {
  choice route;
  policy batching;
};

/// Whether one scheduler batches for all endpoints, by a policy that the user may choose; else the
/// endpoints batch, or one queue as they would.
[[nodiscard]] bool is_batched_by_name(const choice& route);

/// One run in virtual time, on devices that are endpoints. Deterministic; callable from several
/// threads at once.
[[nodiscard]] sim::run_result run_route(const route_choice& r, const sim::workload& w,
                                        const sim::run_options& options);

/// The values of --routes for prompts.
[[nodiscard]] const name_list& prompt_route_names();

/// As `run_route`, for prompts.
/// @param seed Of routes that draw.
[[nodiscard]] sim::text_result run_prompts(const choice& route, const sim::text_workload& w,
                                           std::uint64_t seed);

}  // namespace cohort::registry
