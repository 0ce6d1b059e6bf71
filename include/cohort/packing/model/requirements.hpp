// SPDX-License-Identifier: Apache-2.0
/// @file
/// The `packer` concept, and checks that every packer makes before and after its work.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::packing {

/// Places models on partitions. Semantics: a pure function of its arguments (unless cut by a time
/// limit); a feasible result's plan passes `verify` and serves every rate in full. Throws
/// config_error for a problem that is out of range, never for one that cannot be solved. Models:
/// `basic_squishy`, `basic_elastic`, `self_tuning`, `ideal`, `exact_partition`.
template <class P>
concept packer = std::copy_constructible<P> &&
                 requires(const P& p, const latency_grid& grid, const packing_problem& problem) {
                   { p(grid, problem) } -> std::same_as<packing_result>;
                 };

/// @throws config_error If a number of the problem is out of its range.
inline void check_problem(const latency_grid& grid, const packing_problem& p) {
  expects(p.gpus >= 1, "packing_problem: gpus must be at least 1");
  expects(p.memory_mb > 0, "packing_problem: memory_mb must be above 0");
  expects(p.rates_rps.size() == grid.models(),
          "packing_problem: rates_rps must have one rate for each model of the grid");
  for (const double r : p.rates_rps) {
    expects(r >= 0 && std::isfinite(r), "packing_problem: a rate must be at least 0 and finite");
  }
}

/// Checks the reasons for infeasibility common to all packers: a model that misses its SLO even
/// alone on a whole device, or does not fit into memory, or models that do not fit into the memory
/// of all devices.
/// @returns A result without reason if there is none.
[[nodiscard]] inline packing_result refuse_impossible(const latency_grid& grid,
                                                      const packing_problem& p) {
  const std::size_t whole = grid.sizes() - 1;
  double memory_mb = 0;
  for (std::size_t m = 0; m < grid.models(); ++m) {
    if (p.rates_rps[m] <= 0) continue;
    const model_profile& profile = grid.profile(m);
    if (profile.memory_mb > p.memory_mb) {
      return {.status = packing_status::infeasible,
              .reason = fmt::format("{}: needs {} MB of memory, and a device has {}", profile.name,
                                    profile.memory_mb, p.memory_mb)};
    }
    memory_mb += profile.memory_mb;
    double most = 0;
    for (std::size_t s = 0; s <= whole; ++s) most = std::max(most, grid.capacity_rps(m, s));
    if (most <= 0) {
      return {
          .status = packing_status::infeasible,
          .reason = fmt::format(
              "{}: twice the latency of a batch of 1 on {} % is {} ms, above its SLO of {} ms",
              profile.name, grid.size_pct(whole), 2 * grid.latency(m, whole, 1), profile.slo_ms)};
    }
  }
  if (const double all_mb = p.memory_mb * p.gpus; memory_mb > all_mb * (1 + 1e-9)) {
    return {.status = packing_status::infeasible,
            .reason = fmt::format("the models need {} MB of memory, and all devices have {}",
                                  memory_mb, all_mb)};
  }
  return {};
}

/// Describes the first device with less memory than its models need; empty if there is none.
[[nodiscard]] inline std::string memory_excess(const latency_grid& grid, const packing_problem& p,
                                               const plan& made) {
  if (std::isinf(p.memory_mb)) return {};
  std::vector<double> used(p.gpus, 0.0);
  for (const gpulet& g : made) {
    for (const placed_model& m : g.models) {
      used[g.gpu.index()] += grid.profile(m.model.index()).memory_mb;
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] > p.memory_mb * (1 + 1e-9)) {
      return fmt::format("gpu {}: its models need {} MB of memory, and it has {}", i, used[i],
                         p.memory_mb);
    }
  }
  return {};
}

}  // namespace cohort::packing
