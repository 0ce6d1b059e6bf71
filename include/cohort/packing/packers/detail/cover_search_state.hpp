// SPDX-License-Identifier: Apache-2.0
/// @file
/// Branch and bound over configurations of gpu-lets: the state of the search.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/packers/configuration.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

enum class cover_verdict : std::uint8_t { found, none, cut };

/// The search for one demand.
///
/// For prices λ ≥ 0 with λ · need = 1, a set of places can cover the need only if the largest
/// prices λ · rates of their configurations sum to at least 1. The prices come from the linear
/// program of the remaining places. A node takes the size with the fewest configurations that pass
/// this test and branches on which of them is used there, the dearest first; each one tried is
/// forbidden in that size for its later siblings, so no set of configurations is visited twice.
/// `fit` decides the last place.
class cover_search {
 public:
  cover_search(const latency_grid& grid, const packing_problem& problem,
               const configuration_set& set, std::uint64_t max_nodes, std::function<bool()> stop);

  /// Upper bound on the multiple of the demand that can be covered. Infinite without demand.
  [[nodiscard]] double bound();
  [[nodiscard]] cover_verdict run(std::uint64_t max_combinations);
  [[nodiscard]] plan take_plan() { return std::move(plan_); }

 private:
  using rates = std::vector<double>;
  struct choice {
    std::size_t size;         // Size of the place.
    std::size_t needed_size;  // Size that its configuration needs.
    rates carried;
  };
  struct node {
    std::vector<std::uint32_t> places;  // By size.
    rates need;
    std::vector<std::vector<std::uint32_t>> allowed;  // By size: indices of `rates_`.
  };
  /// A way to cut all devices.
  struct candidate {
    std::vector<std::uint32_t> places;  // By size.
    std::vector<std::size_t> layouts;   // By device.
    double worth = 0;
    bool excluded = false;
  };

  [[nodiscard]] std::span<const double> rates_of(std::size_t size, std::size_t c) const noexcept {
    return {rates_[size].data() + c * demand_.size(), demand_.size()};
  }
  [[nodiscard]] bool cap_configurations();
  [[nodiscard]] std::vector<double> worths(std::span<const double> prices) const;
  [[nodiscard]] bool exhausted();
  void exclude(std::vector<candidate>& all, std::span<const double> prices) const;
  cover_verdict descend(node& n);
  cover_verdict finish(const node& n, std::size_t size);
  bool make_plan(const candidate& c);

  const latency_grid& grid_;
  const packing_problem& problem_;
  const configuration_set& set_;
  std::function<bool()> stop_;
  std::uint64_t left_;
  std::uint64_t budget_ = 0;           // For the present layout.
  std::vector<std::uint32_t> models_;  // Models with demand.
  std::vector<std::size_t> column_;    // Column of each in the configurations.
  rates demand_;
  std::vector<layout> layouts_;
  std::vector<rates> rates_;  // By size: configurations, cut to the demand.
  std::vector<std::vector<std::size_t>> needed_;
  std::vector<choice> chosen_;
  rates zeros_;
  plan plan_;
};

inline cover_search::cover_search(const latency_grid& grid, const packing_problem& problem,
                                  const configuration_set& set, std::uint64_t max_nodes,
                                  std::function<bool()> stop)
    : grid_{grid},
      problem_{problem},
      set_{set},
      stop_{std::move(stop)},
      left_{max_nodes},
      layouts_{maximal_layouts(grid)} {
  for (std::size_t i = 0; i < set.models().size(); ++i) {
    const std::uint32_t m = set.models()[i];
    if (problem.rates_rps[m] <= 0) continue;
    models_.push_back(m);
    column_.push_back(i);
    demand_.push_back(problem.rates_rps[m]);
  }
  zeros_.assign(demand_.size(), 0.0);
}

}  // namespace cohort::packing::detail
