// SPDX-License-Identifier: Apache-2.0
/// @file
/// Best fit on every layout of the devices.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/workspace.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace cohort::packing {

/// gpu-let's reference scheduler: cuts the devices in every way, and places the models on each by
/// best fit, until one serves all; a model's knee is computed over the available sizes. Source:
/// gpu-let, section 6.2. Despite the published name it is not optimal. Complexity: that of
/// `basic_elastic` times the combinations of layouts, which grow exponentially with the devices.
template <order_policy Order = rate_descending, knee_policy Knee = largest_curvature>
struct basic_ideal {
  [[no_unique_address]] Order order{};
  [[no_unique_address]] Knee knee{};
  std::uint64_t max_combinations = 1'000'000;  ///< Gives up after so many.
  std::function<bool()> stop{};                ///< Called before each; true gives up. None: never.

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    const std::vector<layout> layouts = maximal_layouts(grid);
    const std::vector<std::uint32_t> models = ordered_models(order, grid, problem);
    std::vector<std::size_t> chosen(problem.gpus, 0);
    std::vector<const layout*> cut(problem.gpus);
    std::vector<std::size_t> at_hand;
    std::uint64_t tried = 0;
    do {
      if (tried++ == max_combinations || (stop && stop())) {
        return {.reason = "there are too many ways to cut the devices to try them all"};
      }
      at_hand.clear();
      for (std::size_t g = 0; g < cut.size(); ++g) {
        cut[g] = &layouts[chosen[g]];
        if (g == 0 || chosen[g] != chosen[g - 1]) {
          at_hand.insert(at_hand.end(), cut[g]->begin(), cut[g]->end());
        }
      }
      std::ranges::sort(at_hand);
      at_hand.erase(std::ranges::unique(at_hand).begin(), at_hand.end());
      detail::workspace w{grid, problem, cut};
      const bool served = std::ranges::all_of(models, [&](std::uint32_t m) {
        return detail::place(w, m, problem.rates_rps[m], knee(grid, m, at_hand)) <= 0;
      });
      if (served) return {.status = packing_status::feasible, .plan = w.make_plan()};
    } while (next_combination(chosen, layouts.size()));
    return {.reason = "no way to cut the devices lets best fit serve the demand"};
  }
};

using ideal = basic_ideal<>;
static_assert(packer<ideal>);

}  // namespace cohort::packing
