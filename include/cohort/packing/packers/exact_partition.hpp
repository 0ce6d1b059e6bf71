// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides truly whether a demand can be served: finds a plan, proves that there is none, or says
/// that it does not know.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/configuration.hpp>
#include <cohort/packing/packers/detail/cover_search.hpp>
#include <cohort/packing/packers/portfolio.hpp>

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

/// First heuristics; then bounds from a linear program; then, layout by layout of the devices, a
/// branch and bound over Pareto-optimal configurations of gpu-lets. Anytime: cut by `max_nodes` or
/// `stop`, it says `unknown`. Memory is checked but not searched over: where it binds, a demand may
/// be called `unknown` too. Thread safety: immutable. A packer.
class exact_partition {
 public:
  struct options {
    /// Nodes of the branch and bound, over all layouts; the deterministic limit.
    std::uint64_t max_nodes = 10'000'000;
    /// Combinations of layouts of the devices to look at.
    std::uint64_t max_combinations = 200'000;
    /// Batch vectors to look at for the configurations.
    std::uint64_t max_vectors = 20'000'000;
    /// Asked now and then; true cuts the search. None: never. A driver compares its clock here.
    std::function<bool()> stop{};
  };

  exact_partition() = default;
  explicit exact_partition(options o) : options_{std::move(o)} {}

  /// Makes the configurations of the models in demand, once the heuristics have had their turn.
  [[nodiscard]] packing_result operator()(const latency_grid& grid,
                                          const packing_problem& problem) const {
    return with_sets(grid, problem, [&](std::vector<std::uint32_t> models) {
      return std::make_shared<const configuration_set>(grid, problem.rule, std::move(models),
                                                       options_.max_vectors, options_.stop);
    });
  }
  /// With configurations made before, of the same grid and rule and of all models in demand: many
  /// demands can share them.
  [[nodiscard]] packing_result operator()(const latency_grid& grid, const packing_problem& problem,
                                          const configuration_set& set) const {
    check_set(grid, problem, set);
    // Lent, not owned.
    return with_sets(grid, problem, [&set](const std::vector<std::uint32_t>&) {
      return std::shared_ptr<const configuration_set>{std::shared_ptr<const void>{}, &set};
    });
  }
  /// With configurations from `sets(models)`, a shared_ptr to the configurations of at least these
  /// models, of the same grid and rule: asked only once the demand is not known to be impossible
  /// and the heuristics have had their turn. A set that is not complete proves nothing.
  template <class Sets>
  [[nodiscard]] packing_result with_sets(const latency_grid& grid, const packing_problem& problem,
                                         Sets&& sets) const {
    check_problem(grid, problem);
    if (packing_result no = refuse_impossible(grid, problem); !no.reason.empty()) return no;
    packing_result found = portfolio{.stop = options_.stop}(grid, problem);
    if (found.schedulable() && stopped()) return found;
    found.reason.clear();
    std::vector<std::uint32_t> models;
    for (std::uint32_t m = 0; m < grid.models(); ++m) {
      if (problem.rates_rps[m] > 0) models.push_back(m);
    }
    detail::cover_verdict v = detail::cover_verdict::cut;
    if (!stopped()) {
      const std::shared_ptr<const configuration_set> set = sets(std::move(models));
      check_set(grid, problem, *set);
      detail::cover_search search{grid, problem, *set, options_.max_nodes, options_.stop};
      if (set->complete()) found.bound = search.bound();
      if (found.schedulable()) return found;
      if (!stopped()) v = search.run(options_.max_combinations);
      if (v == detail::cover_verdict::found) {
        found.status = packing_status::feasible;
        found.plan = search.take_plan();
        return found;
      }
      if (!set->complete()) v = detail::cover_verdict::cut;
    }
    if (v == detail::cover_verdict::none) {
      found.status = packing_status::infeasible;
      found.reason = "no plan serves the demand: proven";
      if (found.bound) found.bound = std::min(*found.bound, 1.0);
    } else {
      found.reason = "no plan was found within the limits of the search, and none was excluded";
    }
    return found;
  }

 private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  static void check_set(const latency_grid& grid, const packing_problem& problem,
                        const configuration_set& set) {
    check_problem(grid, problem);
    expects(set.rule() == problem.rule, "exact_partition: the configurations are of another rule");
    for (std::uint32_t m = 0; m < grid.models(); ++m) {
      expects(problem.rates_rps[m] <= 0 || std::ranges::count(set.models(), m) > 0,
              "exact_partition: the configurations lack a model in demand");
    }
  }

  options options_{};
};
static_assert(packer<exact_partition>);

}  // namespace cohort::packing
