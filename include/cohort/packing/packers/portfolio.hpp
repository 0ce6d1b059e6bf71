// SPDX-License-Identifier: Apache-2.0
/// @file
/// Many runs of elastic partitioning: every order, every knee.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace cohort::packing {

/// Elastic partitioning with its published orders first, then with every order of the models (the
/// first `max_orders` of them, from ascending rate times SLO on), each with all three knees; the
/// first plan that serves all. Thread safety: immutable.
struct portfolio {
  std::uint32_t max_orders = 120;
  std::function<bool()> stop{};  ///< Asked before each order; true gives up. None: never.

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    packing_result last;
    const auto served = [&](const std::vector<std::uint32_t>& models) {
      const auto by = [&]<class Knee>(Knee knee) {
        last = basic_elastic<rate_descending, Knee>::place_in_order(grid, problem, models, knee);
        return last.schedulable();
      };
      return by(most_per_size{}) || by(largest_curvature{}) || by(best_marginal_gain{});
    };
    std::vector<std::uint32_t> models = ordered_models(rate_slo_ascending{}, grid, problem);
    if (served(ordered_models(rate_descending{}, grid, problem)) ||
        served(ordered_models(load_descending{}, grid, problem))) {
      return last;
    }
    std::vector<std::size_t> order(models.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::vector<std::uint32_t> permuted(models.size());
    std::uint32_t n = 0;
    do {
      for (std::size_t i = 0; i < order.size(); ++i) permuted[i] = models[order[i]];
      if (served(permuted)) return last;
    } while (++n < max_orders && !(stop && stop()) && std::ranges::next_permutation(order).found);
    last.reason = "elastic partitioning serves the demand in no order that was tried";
    return last;
  }
};
static_assert(packer<portfolio>);

}  // namespace cohort::packing
