// SPDX-License-Identifier: Apache-2.0
/// @file
/// Orders the steps from the plan in service to the next one so that no model is left unserved.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/moves/detail/transition_matching.hpp>
#include <cohort/packing/moves/detail/transition_state.hpp>
#include <cohort/packing/moves/detail/transition_steps.hpp>
#include <cohort/packing/moves/transition.hpp>

#include <vector>

namespace cohort::packing {

/// Steps from the plan in service to the next one. Devices are alike: the next plan's are renamed
/// so that most partitions and models stay. At every step, sizes, counts and memory of each device
/// keep the limits, and every model of both plans is served by some partition where it is loaded
/// and warm. If a partition must be removed before its successor fits, its models are first
/// sheltered in other partitions. SLOs may be missed during the transition: a sheltered model uses
/// capacity planned for others. If no memory is left to shelter a model, it is interrupted and
/// listed as such.
///
/// Devices that are set aside stay unchanged, with all their gpu-lets. A model served by one of
/// those counts as served there, unless the gpu-let is out. If the next plan has more devices than
/// are left, gpu-lets of the devices with least in common are left out.
/// @param current May be the middle of an earlier transition: models may be loaded and not served.
/// @throws config_error If a plan does not keep the limits itself, or a device set aside is
/// unknown. Complexity: O(gpus² + partitions²).
[[nodiscard]] inline transition plan_transition(const latency_grid& grid,
                                                const std::vector<live_gpulet>& current,
                                                const plan& next, const transition_limits& limits) {
  return detail::transition_maker{grid, current, next, limits}.run();
}

}  // namespace cohort::packing
