// SPDX-License-Identifier: Apache-2.0
/// @file
/// The order in which a greedy packer places the models.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <vector>

namespace cohort::packing {

/// A key by which models are placed, ascending; equal keys in the order of the grid. Semantics:
/// pure; not NaN. Models: `rate_descending`, `rate_slo_ascending`, `load_descending`.
template <class O>
concept order_policy =
    std::copy_constructible<O> &&
    requires(const O& o, const latency_grid& grid, const packing_problem& p, std::uint32_t model) {
      { o(grid, p, model) } noexcept -> std::same_as<double>;
    };

/// The largest rate first. Source: gpu-let, algorithm 1.
struct rate_descending {
  [[nodiscard]] double operator()(const latency_grid&, const packing_problem& p,
                                  std::uint32_t model) const noexcept {
    return -p.rates_rps[model];
  }
};
static_assert(order_policy<rate_descending>);

/// The smallest rate times SLO first: models with the smallest batches.
struct rate_slo_ascending {
  [[nodiscard]] double operator()(const latency_grid& grid, const packing_problem& p,
                                  std::uint32_t model) const noexcept {
    return p.rates_rps[model] * grid.slo_ms(model);
  }
};
static_assert(order_policy<rate_slo_ascending>);

/// The model that needs most of a whole device first.
struct load_descending {
  [[nodiscard]] double operator()(const latency_grid& grid, const packing_problem& p,
                                  std::uint32_t model) const noexcept {
    const double most = grid.capacity_rps(model, grid.sizes() - 1);
    return most > 0 ? -p.rates_rps[model] / most : 0;
  }
};
static_assert(order_policy<load_descending>);

/// The models with a rate above 0, in the order of the policy.
template <order_policy Order>
[[nodiscard]] std::vector<std::uint32_t> ordered_models(const Order& order,
                                                        const latency_grid& grid,
                                                        const packing_problem& p) {
  std::vector<std::uint32_t> models;
  for (std::uint32_t m = 0; m < grid.models(); ++m) {
    if (p.rates_rps[m] > 0) models.push_back(m);
  }
  detail::sort_stably(models, {}, [&](std::uint32_t m) { return order(grid, p, m); });
  return models;
}

}  // namespace cohort::packing
