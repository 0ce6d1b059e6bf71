// SPDX-License-Identifier: Apache-2.0
/// @file
/// Pictures of a plan: for the terminal and as SVG, GPU by GPU.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <cstdint>
#include <string>

namespace cohort::drawings {

/// A bar for each GPU, divided into its gpu-lets, with their models, and a table of gpu-lets.
[[nodiscard]] std::string plan_text(const packing::latency_grid& grid, std::uint32_t gpus,
                                    const packing::plan& p);
/// Every GPU as a box as high as its gpu-lets' sizes, over time: the batches of each duty cycle.
[[nodiscard]] std::string plan_svg(const packing::latency_grid& grid, std::uint32_t gpus,
                                   const packing::plan& p);

}  // namespace cohort::drawings
