// SPDX-License-Identifier: Apache-2.0
/// @file
/// Profiles and demands for tests: small ones to work by hand, and random ones.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <support/random_source.hpp>
#include <utility>
#include <vector>

namespace cohort::packing::test {

/// L(b) = 1 + b ms on the whole device, twice that on half of it; batches 1 to 8.
inline model_profile unit_model(std::string name, double slo_ms, double memory_mb = 0) {
  return {.name = std::move(name),
          .slo_ms = slo_ms,
          .memory_mb = memory_mb,
          .latency = {{1, 100, 2}, {8, 100, 9}, {1, 50, 4}, {8, 50, 18}},
          .usage = {{1, 0.2, 0.4}, {8, 0.6, 0.8}}};
}

/// Sizes 50 and 100.
inline grid_options halves() { return {.sizes = {50, 100}}; }

/// Latencies that grow with the batch (with `noise`, not always) and shrink with the size.
inline std::vector<model_profile> random_profiles(cohort::test::random_source& random,
                                                  std::uint32_t count, bool noise = false) {
  const auto uniform = [&random](double low, double high) {
    return low + (high - low) * random.below(1'000'000U) / 1e6;
  };
  std::vector<model_profile> models;
  for (std::uint32_t i = 0; i < count; ++i) {
    model_profile m{.name = "model-" + std::to_string(i)};
    const double fixed = uniform(0.5, 8);
    const double each = uniform(0.05, 2);
    const double power = uniform(0.2, 1);
    const std::uint32_t batches[] = {1, 2, 4, 8, 16};
    for (const std::uint32_t b : batches) {
      for (const std::uint32_t p : {20U, 40U, 50U, 60U, 80U, 100U}) {
        const double wobble = noise ? uniform(0.7, 1.3) : 1;
        m.latency.push_back({b, p, (fixed + each * b) * std::pow(100.0 / p, power) * wobble});
      }
      m.usage.push_back({b, uniform(0, 0.6), uniform(0, 0.8)});
    }
    m.slo_ms = (fixed + each) * uniform(2, 12);
    m.memory_mb = std::floor(uniform(10, 3000));
    models.push_back(std::move(m));
  }
  return models;
}

/// About `load` devices' worth of the models, each of which is left out once in three times.
inline packing_problem random_problem(cohort::test::random_source& random, const latency_grid& grid,
                                      std::uint32_t gpus, double load) {
  packing_problem p{.gpus = gpus, .rule = random.one_in(3) ? slo_rule::sum : slo_rule::own};
  const std::size_t whole = grid.sizes() - 1;
  for (std::size_t m = 0; m < grid.models(); ++m) {
    const double part = random.below(1000U) / 500.0 / static_cast<double>(grid.models());
    p.rates_rps.push_back(random.one_in(3) ? 0 : part * load * grid.capacity_rps(m, whole));
  }
  return p;
}

}  // namespace cohort::packing::test
