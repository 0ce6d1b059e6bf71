// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random demands by seed: models, sizes and devices of any shape, with loads around what fits.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/packers/work_bound.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace cohort::bench {

/// One demand, with the latencies that it is planned on.
struct drawn_demand {
  packing::latency_grid grid;
  packing::packing_problem problem;
};

/// How demands are drawn.
struct draw_options {
  std::uint32_t most_gpus = 16;
  std::uint32_t most_models = 8;
  double least_load = 0.5;  ///< Of the largest multiple that the bound by work leaves.
  double most_load = 1.05;
};

/// 1 to 16 devices, 1 to 4 gpu-lets a device, 2 to 8 sizes from 5 to 100 %, 1 to 8 models. Their
/// latencies are (fixed + each · b) · (100 / p)^power, a third of the sets with noise of ±15 %.
inline drawn_demand draw_demand(std::uint64_t seed, const draw_options& o = {}) {
  std::mt19937_64 random{seed};
  const auto uniform = [&random](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11U) * 0x1p-53;
  };
  const auto whole = [&random](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(random() % (high - low + 1));
  };
  packing::packing_problem p{.gpus = whole(1, o.most_gpus)};
  if (whole(1, 3) == 1) p.rule = packing::slo_rule::sum;
  packing::grid_options shape{.sizes = {}, .max_gpulets_per_gpu = whole(1, 4)};
  // Multiples of 10 or of 5, or any whole percent.
  const std::uint32_t steps[] = {10, 5, 1};
  const std::uint32_t step = steps[whole(0, 2)];
  const std::uint32_t count = whole(2, 8);
  while (shape.sizes.size() < count) {
    const std::uint32_t pct = step * whole((5 + step - 1) / step, 100 / step);
    if (std::ranges::find(shape.sizes, pct) == shape.sizes.end()) shape.sizes.push_back(pct);
  }
  const bool noisy = whole(1, 3) == 1;
  std::vector<packing::model_profile> models;
  const std::uint32_t number = whole(1, o.most_models);
  for (std::uint32_t i = 0; i < number; ++i) {
    packing::model_profile m{.name = "model-" + std::to_string(i)};
    const double fixed = uniform(0.5, 8);
    const double each = uniform(0.05, 2);
    const double power = uniform(0.2, 1);
    for (const std::uint32_t b : {1U, 2U, 4U, 8U, 16U, 32U}) {
      for (const std::uint32_t pct : shape.sizes) {
        const double noise = noisy ? uniform(0.85, 1.15) : 1;
        m.latency.push_back({b, pct, (fixed + each * b) * std::pow(100.0 / pct, power) * noise});
      }
    }
    m.slo_ms = (fixed + each) * uniform(3, 15) * std::pow(100.0 / shape.sizes.back(), power);
    models.push_back(std::move(m));
  }
  packing::latency_grid grid{std::move(models), std::move(shape)};
  for (std::uint32_t i = 0; i < number; ++i) {
    double most = 0;
    for (const std::size_t s : grid.all_sizes()) most = std::max(most, grid.capacity_rps(i, s));
    p.rates_rps.push_back(most * std::exp(uniform(-2, 0)));
  }
  const double multiple =
      uniform(o.least_load, o.most_load) * packing::detail::size_prices{grid, p}.solve();
  for (double& r : p.rates_rps) r *= multiple;
  return {std::move(grid), std::move(p)};
}

}  // namespace cohort::bench
