// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides whether a demand can be served: finds a plan, proves that there is none, or reports that
/// it does not know.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/configuration.hpp>
#include <cohort/packing/packers/detail/cover_search.hpp>
#include <cohort/packing/packers/detail/rounded_cover.hpp>
#include <cohort/packing/packers/portfolio.hpp>
#include <cohort/packing/packers/work_bound.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::packing {

/// Tries, in this order: a bound by work, which is fast for any number of models; every heuristic;
/// a linear program over ways to fill gpu-lets, which may exclude all plans, and plans rounded from
/// it; then, layout by layout of the devices, a branch and bound over Pareto-optimal configurations
/// of gpu-lets. It ends with the first plan. Anytime: if its limits or `stop` cut it, it returns
/// `unknown`. `bound` always holds the best proved one. Memory is checked but not searched over: if
/// it binds, the result may also be `unknown`. Thread safety: immutable. A packer.
class exact_partition {
 public:
  struct options {
    /// Nodes of the branch and bound, over all layouts; the deterministic limit.
    std::uint64_t max_nodes = 10'000'000;
    /// Combinations of layouts of the devices to look at.
    std::uint64_t max_combinations = 200'000;
    /// Batch vectors to look at for the configurations.
    std::uint64_t max_vectors = 20'000'000;
    /// Tries to round the linear program, in all.
    std::uint64_t max_roundings = 64;
    /// Called now and then; true cuts the search. None: never. A driver checks its clock here.
    std::function<bool()> stop{};
  };

  exact_partition() = default;
  explicit exact_partition(options o) : options_{std::move(o)} {}

  /// Makes the configurations of the models in demand if the heuristics find no plan.
  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    return with_sets(grid, problem, [&](std::vector<std::uint32_t> models) {
      return std::make_shared<const configuration_set>(grid, problem.rule, std::move(models),
                                                       options_.max_vectors, options_.stop,
                                                       problem.rates_rps);
    });
  }
  /// Uses given configurations, of the same grid and rule and of all models in demand: many demands
  /// can share them.
  [[nodiscard]] packing_result operator()(const latency_grid& grid, const packing_problem& problem,
                                          const configuration_set& set) const {
    check_set(grid, problem, set);
    // Lent, not owned.
    return with_sets(grid, problem, [&set](const std::vector<std::uint32_t>&) {
      return std::shared_ptr<const configuration_set>{std::shared_ptr<const void>{}, &set};
    });
  }
  /// Uses configurations from `sets(models)`, a shared_ptr to the configurations of at least these
  /// models, of the same grid and rule. It is called only if no heuristic serves the demand and it
  /// is not known to be impossible. Incomplete ones are not used.
  template <class Sets>
  [[nodiscard]] packing_result with_sets(const latency_grid& grid, const packing_problem& problem,
                                         Sets&& sets) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) {
      no.bound = 0;  // However small the rates.
      return no;
    }
    const double bound = work_bound(grid, problem);
    if (bound < 1 - proof_margin) {
      return {.status = packing_status::infeasible,
              .reason = "no plan serves the demand: its work is more than the devices can do",
              .bound = bound};
    }
    packing_result found = portfolio{.stop = options_.stop}(grid, problem);
    found.bound = bound;
    if (found.schedulable()) return found;
    std::vector<std::uint32_t> models;
    for (std::uint32_t m = 0; m < grid.models(); ++m) {
      if (problem.rates_rps[m] > 0) models.push_back(m);
    }
    const portfolio of_rest{.max_orders = 6, .max_combinations = 30, .stop = options_.stop};
    detail::rounded_cover rounded{grid, problem,
                                  [&](const packing_problem& left) { return of_rest(grid, left); }};
    std::uint64_t tries = models.size() > most_models ? options_.max_roundings : 0;
    const auto rounds = [&](std::uint64_t most) {
      while (tries < most && !stopped()) {
        if (auto p = rounded(tries++)) {
          found.plan = std::move(*p);
          return true;
        }
      }
      return false;
    };
    detail::cover_verdict v = detail::cover_verdict::cut;
    if (models.size() <= most_models && rounded.excludes(options_.stop)) {
      v = detail::cover_verdict::none;
    } else if (rounds(std::min(first_roundings, options_.max_roundings))) {
      v = detail::cover_verdict::found;
    } else if (!stopped()) {
      v = search(grid, problem, models, sets, found);
      if (v == detail::cover_verdict::cut && rounds(options_.max_roundings)) {
        v = detail::cover_verdict::found;
      }
    }
    if (v == detail::cover_verdict::found) {
      found.status = packing_status::feasible;
      found.reason.clear();
    } else if (v == detail::cover_verdict::none) {
      found.status = packing_status::infeasible;
      found.reason = "no plan serves the demand: proven";
      found.bound = std::min(bound, 1.0);
    } else {
      found.reason = "no plan was found within the limits of the search, and none was excluded";
    }
    return found;
  }

 private:
  /// Number before configurations are made, which cost more.
  static constexpr std::uint64_t first_roundings = 8;
  /// Limit of models in demand for these linear programs.
  static constexpr std::size_t most_models = 64;

  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  /// The branch and bound; leaves the plan, if any, in `found`.
  template <class Sets>
  detail::cover_verdict search(const latency_grid& grid, const packing_problem& problem,
                               const std::vector<std::uint32_t>& models, Sets& sets,
                               packing_result& found) const {
    std::shared_ptr<const configuration_set> set = sets(models);
    check_set(grid, problem, *set);
    // The set may be too large for all demands and small for this one.
    if (!set->complete() && !set->limited() && !stopped()) {
      set = std::make_shared<const configuration_set>(
          grid, problem.rule, models, options_.max_vectors, options_.stop, problem.rates_rps);
    }
    if (!set->complete() || stopped()) return detail::cover_verdict::cut;
    detail::cover_search all{grid, problem, *set, options_.max_nodes, options_.stop};
    const detail::cover_verdict v = all.run(options_.max_combinations);
    if (v == detail::cover_verdict::found) found.plan = all.take_plan();
    return v;
  }
  static void check_set(const latency_grid& grid, const packing_problem& problem,
                        const configuration_set& set) {
    check_problem(grid, problem);
    expects(set.rule() == problem.rule, "exact_partition: the configurations are of another rule");
    expects(set.serves(problem.rates_rps),
            "exact_partition: the configurations are for smaller rates");
    for (std::uint32_t m = 0; m < grid.models(); ++m) {
      expects(problem.rates_rps[m] <= 0 || std::ranges::count(set.models(), m) > 0,
              "exact_partition: the configurations lack a model in demand");
    }
  }

  options options_{};
};
static_assert(packer<exact_partition>);

}  // namespace cohort::packing
