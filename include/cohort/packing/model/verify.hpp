// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks plans independently of the packers: every rule, from the measured profiles alone.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::packing {

/// Relative tolerance for plans written as decimal numbers.
inline constexpr double verify_tolerance = 1e-6;

/// Describes every constraint that the plan breaks, one sentence each; empty if it keeps all.
/// Shares only the measured tables with the packers. With `interference`, latencies grow by the
/// actual effect of the neighbouring gpu-lets: the worst model of each neighbour, excesses added.
/// Sizes, limits and SLOs are those of the grid; its padding is not used. Complexity: O(gpulets ·
/// neighbours · models).
[[nodiscard]] inline std::vector<std::string> verify(
    const latency_grid& grid, const packing_problem& problem, const plan& p,
    const std::optional<interference_model>& interference = std::nullopt) {
  std::vector<std::string> broken;
  const auto complain = [&broken](std::size_t i, std::string what) {
    broken.push_back(fmt::format("gpulet {}: {}", i, what));
  };
  const std::vector<std::uint32_t>& sizes = grid.options().sizes;
  std::vector<double> served(grid.models(), 0.0);
  std::vector<std::uint32_t> used(problem.gpus, 0);
  std::vector<std::uint32_t> count(problem.gpus, 0);
  std::vector<double> memory(problem.gpus, 0.0);
  constexpr double more = 1 + verify_tolerance;

  // Whether the latencies of a gpu-let can be looked up at all.
  const auto sound = [&](const gpulet& g) {
    return g.gpu.index() < problem.gpus && std::ranges::binary_search(sizes, g.size.percent()) &&
           std::ranges::all_of(
               g.models,
               [&](const placed_model& m) {
                 return m.model.index() < grid.models() && m.batch >= 1 &&
                        m.batch <= grid.max_batch(m.model.index());
               });
  };

  for (std::size_t i = 0; i < p.size(); ++i) {
    const gpulet& g = p[i];
    if (g.gpu.index() >= problem.gpus) {
      complain(i, fmt::format("gpu {} does not exist: there are {}", g.gpu.value(), problem.gpus));
    } else {
      used[g.gpu.index()] += g.size.percent();
      ++count[g.gpu.index()];
    }
    if (!std::ranges::binary_search(sizes, g.size.percent())) {
      complain(i, fmt::format("size {} is not one of the sizes", g.size.percent()));
    }
    if (g.models.empty()) complain(i, "has no models");
    if (!(g.duty_ms > 0) || !std::isfinite(g.duty_ms)) {
      complain(i, fmt::format("duty cycle is {:.6g} ms, expected above 0", g.duty_ms));
    }
    for (std::size_t k = 0; k < g.models.size(); ++k) {
      const placed_model& m = g.models[k];
      if (m.model.index() >= grid.models()) {
        complain(i, fmt::format("model {} is unknown", m.model.value()));
        continue;
      }
      const std::string& name = grid.profile(m.model.index()).name;
      for (std::size_t other = 0; other < k; ++other) {
        if (g.models[other].model == m.model) complain(i, fmt::format("{} occurs twice", name));
      }
      if (m.batch < 1 || m.batch > grid.max_batch(m.model.index())) {
        complain(i, fmt::format("{}: batch {} is not in 1 to {}", name, m.batch,
                                grid.max_batch(m.model.index())));
      }
      if (!(m.rate_rps >= 0) || !std::isfinite(m.rate_rps)) {
        complain(i, fmt::format("{}: rate is {:.6g}, expected at least 0", name, m.rate_rps));
      } else {
        served[m.model.index()] += m.rate_rps;
      }
      if (g.gpu.index() < problem.gpus) {
        memory[g.gpu.index()] += grid.profile(m.model.index()).memory_mb;
      }
    }
    if (!sound(g)) continue;

    std::vector<double> latency;
    double sum = 0;
    for (const placed_model& m : g.models) {
      double l = grid.measured(m.model.index())(m.batch, g.size.percent());
      if (interference) {
        const model_profile& own = grid.profile(m.model.index());
        const device_usage self = usage_of(own, m.batch, g.size.percent());
        double f = 1;
        for (std::size_t n = 0; n < p.size(); ++n) {
          if (n == i || p[n].gpu != g.gpu || !sound(p[n])) continue;
          double worst = 1;
          for (const placed_model& other : p[n].models) {
            const model_profile& o = grid.profile(other.model.index());
            worst = std::max(worst, factor_between(*interference, own, self, o, other.model.index(),
                                                   usage_of(o, other.batch, p[n].size.percent())));
          }
          f += worst - 1;
        }
        l *= f;
      }
      latency.push_back(l);
      sum += l;
    }
    if (sum > g.duty_ms * more) {
      complain(i, fmt::format("its batches take {:.6g} ms, more than the duty cycle of {:.6g} ms",
                              sum, g.duty_ms));
    }
    for (std::size_t k = 0; k < g.models.size(); ++k) {
      const placed_model& m = g.models[k];
      const std::string& name = grid.profile(m.model.index()).name;
      const double carried = m.rate_rps * 1e-3 * g.duty_ms;
      if (carried > m.batch * more) {
        complain(i,
                 fmt::format("{}: {:.6g} requests come in a duty cycle, more than the batch of {}",
                             name, carried, m.batch));
      }
      const double worst = g.duty_ms + (problem.rule == slo_rule::own ? latency[k] : sum);
      if (worst > grid.slo_ms(m.model.index()) * more) {
        complain(i, fmt::format("{}: a request may take {:.6g} ms, more than its SLO of {:.6g} ms",
                                name, worst, grid.slo_ms(m.model.index())));
      }
    }
  }
  for (std::uint32_t i = 0; i < problem.gpus; ++i) {
    if (used[i] > 100) {
      broken.push_back(fmt::format("gpu {}: sizes sum to {}, more than 100", i, used[i]));
    }
    if (count[i] > grid.options().max_gpulets_per_gpu) {
      broken.push_back(fmt::format("gpu {}: has {} gpu-lets, more than {}", i, count[i],
                                   grid.options().max_gpulets_per_gpu));
    }
    if (memory[i] > problem.memory_mb * more) {
      broken.push_back(fmt::format("gpu {}: its models need {} MB of memory, and it has {}", i,
                                   memory[i], problem.memory_mb));
    }
  }
  for (std::size_t m = 0; m < grid.models(); ++m) {
    if (served[m] < problem.rates_rps[m] * (1 - verify_tolerance)) {
      broken.push_back(fmt::format("{}: {:.6g} of {:.6g} requests a second are served",
                                   grid.profile(m).name, served[m], problem.rates_rps[m]));
    }
  }
  return broken;
}

}  // namespace cohort::packing
