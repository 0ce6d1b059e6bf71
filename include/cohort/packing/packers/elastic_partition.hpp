// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elastic partitioning: devices are cut as each model needs.
#pragma once

#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/workspace.hpp>
#include <cohort/packing/packers/fit_policy.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cohort::packing {

namespace detail {

/// Places one model that uses a gpu-let of size `knee` best.
/// @returns The rate that could not be placed.
template <fit_policy Fit = tightest>
double place(workspace& w, std::uint32_t model, double rate, std::size_t knee,
             const Fit& choice = {}) {
  const latency_grid& grid = w.grid();
  double left = rate;
  while (left > rate * tolerance) {
    const std::size_t needed = least_size(grid, w.problem().rule, model, left);
    const std::size_t ideal = std::min({knee, needed, grid.sizes() - 1});
    const std::optional<std::size_t> chosen = w.best_fit(ideal, model, choice);
    if (chosen) {
      const std::size_t size = w.cut_size(*chosen, ideal);
      const double part = std::min(left, grid.capacity_rps(model, size));
      if (part > 0) {
        if (!w.merge(model, part)) w.assign(w.cut(*chosen, ideal), model, part);
        left -= part;
        continue;
      }
    }
    const double part = w.take_largest(model, left);
    if (part <= 0) return left;
    left -= part;
  }
  return 0;
}

}  // namespace detail

/// gpu-let's algorithm 1. For each model, until its rate is served: the ideal size is the smaller
/// of its knee and the smallest size that carries the rest of its rate; it takes the smallest free
/// gpu-let at least as large, cutting a whole device if necessary; but if a gpu-let in use can also
/// carry that rate, it is used and the cut is undone. If no free gpu-let is large enough, the rest
/// goes where most of it can still be carried.
/// @tparam Order Which model is placed first.  @tparam Knee The size at which a model is cheapest.
/// @tparam Fit Which free gpu-let it takes. Complexity: O((models + gpus) · gpulets). Thread
/// safety: immutable.
template <order_policy Order = rate_descending, knee_policy Knee = largest_curvature,
          fit_policy Fit = tightest>
struct basic_elastic {
  [[no_unique_address]] Order order{};
  [[no_unique_address]] Knee knee{};
  [[no_unique_address]] Fit choice{};

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    return place_in_order(grid, problem, ordered_models(order, grid, problem), knee, choice);
  }

  /// Places the models in the given order, each at most once.
  [[nodiscard]] static packing_result place_in_order(const latency_grid& grid,
                                                     const packing_problem& problem,
                                                     std::span<const std::uint32_t> models,
                                                     const Knee& knee, const Fit& choice = {}) {
    detail::workspace w{grid, problem};
    for (const std::uint32_t m : models) {
      const double left =
          detail::place(w, m, problem.rates_rps[m], knee(grid, m, grid.all_sizes()), choice);
      if (left > 0) {
        return {.reason = fmt::format("{}: {:.6g} of {:.6g} requests a second fit no gpu-let",
                                      grid.profile(m).name, left, problem.rates_rps[m])};
      }
    }
    return {.status = packing_status::feasible, .plan = w.make_plan()};
  }
};

/// As published, without interference.
using elastic = basic_elastic<rate_descending, largest_curvature>;
/// For grids that are padded for the worst neighbour.
using elastic_int = basic_elastic<rate_slo_ascending, most_per_size>;
static_assert(packer<elastic>);
static_assert(packer<elastic_int>);

}  // namespace cohort::packing
