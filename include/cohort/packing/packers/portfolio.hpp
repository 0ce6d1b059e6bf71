// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tries every heuristic in turn until one finds a plan.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/fit_policy.hpp>
#include <cohort/packing/packers/ideal.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace cohort::packing {

/// Tries, in this order: elastic partitioning with its published orders, each with all three knees;
/// squishy bin packing on devices cut into each of the sizes; self-tuning; elastic partitioning
/// with the other fits, then with every order of the models (the first `max_orders` of them, from
/// ascending rate times SLO on); the first `max_combinations` ways of `ideal`. Returns the first
/// plan that serves all. Complexity: the sum of its packers'. Thread safety: immutable. A packer.
struct portfolio {
  std::uint32_t max_orders = 120;
  std::uint64_t max_combinations = 2000;  ///< Ways to cut the devices, for `ideal`.
  std::function<bool()>
      stop{};  ///< Called after the first plan was tried; true gives up. None: never.

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    packing_result last;
    const auto served = [&last](packing_result r) {
      last = std::move(r);
      return last.schedulable();
    };
    const auto stopped = [this] { return stop && stop(); };
    // With every knee.
    const auto in_order = [&]<class Fit>(const std::vector<std::uint32_t>& models, Fit fit) {
      const auto by = [&]<class Knee>(Knee knee) {
        using packer = basic_elastic<rate_descending, Knee, Fit>;
        return served(packer::place_in_order(grid, problem, models, knee, fit));
      };
      return by(most_per_size{}) || by(largest_curvature{}) || by(best_marginal_gain{});
    };
    const std::vector<std::uint32_t> published = ordered_models(rate_descending{}, grid, problem);
    const std::vector<std::uint32_t> heavy = ordered_models(load_descending{}, grid, problem);
    const std::vector<std::uint32_t> light = ordered_models(rate_slo_ascending{}, grid, problem);
    if (in_order(published, tightest{}) || in_order(heavy, tightest{})) return last;
    for (std::size_t s = grid.sizes(); s-- > 0 && !stopped();) {
      const std::uint32_t parts =
          std::min(grid.options().max_gpulets_per_gpu, 100 / grid.size_pct(s));
      if (served(detail::squishy_on(grid, problem, s, parts))) return last;
    }
    if (!stopped() && (served(self_tuning{}(grid, problem)) ||
                       served(basic_self_tuning<load_descending, most_per_size>{}(grid, problem)) ||
                       in_order(heavy, roomiest{}) || in_order(published, first_free{}))) {
      return last;
    }
    std::vector<std::size_t> order(light.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::vector<std::uint32_t> permuted(light.size());
    for (std::uint32_t n = 0; n < max_orders && !stopped(); ++n) {
      for (std::size_t i = 0; i < order.size(); ++i) permuted[i] = light[order[i]];
      if (in_order(permuted, tightest{})) return last;
      if (!std::ranges::next_permutation(order).found) break;
    }
    if (max_combinations > 0 && !stopped()) {
      ideal packer;
      packer.max_combinations = max_combinations;
      packer.stop = stop;
      if (served(packer(grid, problem))) return last;
    }
    return {.reason = "no heuristic serves the demand in any order that was tried"};
  }
};
static_assert(packer<portfolio>);

}  // namespace cohort::packing
