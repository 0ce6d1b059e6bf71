// SPDX-License-Identifier: Apache-2.0
/// @file
/// A picture of a server that replans as its load changes.
#pragma once

#include <cohort/sim/plans/closed_loop.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::drawings {

/// Three panels over time as SVG: requests per second, stacked by model, with a line for those in
/// time; partitions in use, with a mark for each new plan; and the fraction of each period's
/// requests that was late or dropped.
/// @param shown The models to draw, as indices of `names`.
[[nodiscard]] std::string wave_svg(const std::vector<std::string>& names,
                                   const std::vector<std::size_t>& shown, std::uint32_t gpus,
                                   const sim::closed_loop_result& r);

}  // namespace cohort::drawings
