// SPDX-License-Identifier: Apache-2.0
/// @file
/// Partitions only in space: no two models share a gpu-let.
#pragma once

#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/workspace.hpp>
#include <cohort/packing/packers/knee.hpp>
#include <cohort/packing/packers/order.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace cohort::packing {

/// GSLICE, guided by profiles: each model gets partitions of the size that serves it best, or of
/// the smallest that carries the rest of its rate, cut from free devices; if none is that large,
/// the largest free one. Profiles replace its self-tuning by trial. Source: gpu-let, section 6.1.
/// Complexity: O(gpulets²). Thread safety: immutable.
template <order_policy Order = rate_descending, knee_policy Knee = largest_curvature>
struct basic_self_tuning {
  [[no_unique_address]] Order order{};
  [[no_unique_address]] Knee knee{};

  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    detail::workspace w{grid, problem};
    for (const std::uint32_t m : ordered_models(order, grid, problem)) {
      const double rate = problem.rates_rps[m];
      const std::size_t best = knee(grid, m, grid.all_sizes());
      double left = rate;
      while (left > rate * tolerance) {
        std::size_t size = std::min(best, least_size(grid, problem.rule, m, left));
        std::optional<std::size_t> chosen = w.best_fit(size, m);
        // If no free one is that large: the largest free one.
        while (!chosen && size > 0) chosen = w.best_fit(--size, m);
        const double part =
            chosen ? std::min(left, grid.capacity_rps(m, w.cut_size(*chosen, size))) : 0;
        if (part <= 0) {
          return {.reason = fmt::format("{}: {:.6g} of {:.6g} requests a second fit no gpu-let",
                                        grid.profile(m).name, left, rate)};
        }
        w.assign(w.cut(*chosen, size), m, part);
        left -= part;
      }
    }
    return {.status = packing_status::feasible, .plan = w.make_plan()};
  }
};

using self_tuning = basic_self_tuning<>;
static_assert(packer<self_tuning>);

}  // namespace cohort::packing
