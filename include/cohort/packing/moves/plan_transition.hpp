// SPDX-License-Identifier: Apache-2.0
/// @file
/// From the plan in service to the next one: ordered steps that leave no model unserved.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/detail/transition_matching.hpp>
#include <cohort/packing/moves/detail/transition_state.hpp>
#include <cohort/packing/moves/detail/transition_steps.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <vector>

namespace cohort::packing {

/// Steps from what is in service to the next plan. Devices are alike: the next plan's are renamed
/// so that most partitions and models stay. At every step: sizes, counts and memory of each device
/// keep the limits, and every model of both plans is served by some partition where it is loaded
/// and warm. Where a partition must go before its successor fits, its models are first sheltered in
/// other partitions. Between the plans SLOs may be missed: a sheltered model shares what was
/// planned for others.
/// If there is no memory anywhere to shelter a model, it is interrupted, and named so.
///
/// Devices that are set aside stay as they are, with all their gpu-lets. A model that one of those
/// serves counts as served there, unless the gpu-let is out. Where the next plan has more devices
/// than are left, the gpu-lets of those that keep least are left out.
/// @param current May be the middle of an earlier transition: models may be loaded and not served.
/// @throws config_error If a plan does not keep the limits itself, or a device set aside is
/// unknown. Complexity: O(gpus² + partitions²).
[[nodiscard]] inline transition plan_transition(const latency_grid& grid,
                                                const std::vector<live_gpulet>& current,
                                                const plan& next, const transition_limits& limits) {
  return detail::transition_maker{grid, current, next, limits}.run();
}

}  // namespace cohort::packing
