// SPDX-License-Identifier: Apache-2.0
/// @file
/// Places models on partitions by an integer program for COIN-OR's CBC: an independent check of
/// `exact`, with its own lists of configurations and layouts.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <cstddef>
#include <cstdint>

namespace cohort::packing {

/// The solver's result.
struct partition_answer {
  packing_status status = packing_status::unknown;
  packing::plan plan{};   ///< Empty unless feasible.
  bool complete = false;  ///< All configurations were columns; if not, it excludes nothing.
};

/// Solves: integers x(s, c) of gpu-lets of size s with batches c, y(l) of devices cut as l, with no
/// more gpu-lets than the devices have, and rates that sum to at least the demand; minimises the
/// devices. The columns are all batches that keep the SLOs, by their definition; if there are more
/// than `most_columns`, with fewer models on a gpu-let, then with fewer batches. For small
/// problems. Ignores memory. One thread. Blocks for about `limit_s` at most.
/// @throws config_error If the problem is out of range, or `limit_s` is not above 0.
[[nodiscard]] partition_answer solve_partition_with_cbc(const latency_grid& grid,
                                                        const packing_problem& problem,
                                                        double limit_s,
                                                        std::size_t most_columns = 20'000);

}  // namespace cohort::packing
