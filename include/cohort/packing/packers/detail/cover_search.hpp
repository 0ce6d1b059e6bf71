// SPDX-License-Identifier: Apache-2.0
/// @file
/// Branch and bound over configurations of gpu-lets: decides whether a demand can be covered.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/layout.hpp>
#include <cohort/packing/packers/detail/cover_lp.hpp>
#include <cohort/packing/packers/detail/cover_search_bounds.hpp>
#include <cohort/packing/packers/detail/cover_search_nodes.hpp>
#include <cohort/packing/packers/detail/cover_search_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

inline cover_verdict cover_search::run(std::uint64_t max_combinations) {
  if (demand_.empty()) return cover_verdict::found;
  if (!cap_configurations()) return cover_verdict::cut;
  if (combinations(layouts_.size(), problem_.gpus, max_combinations + 1) > max_combinations) {
    // Too many to list; the bound over whole devices may still exclude all.
    return bound() < 1 - tolerance ? cover_verdict::none : cover_verdict::cut;
  }
  std::vector<candidate> all;
  std::vector<std::size_t> layouts(problem_.gpus, 0);
  do {
    candidate c{.places = std::vector<std::uint32_t>(grid_.sizes(), 0),
                .layouts = layouts,
                .worth = std::numeric_limits<double>::infinity()};
    for (const std::size_t l : layouts) {
      for (const std::size_t s : layouts_[l]) ++c.places[s];
    }
    all.push_back(std::move(c));
  } while (next_combination(layouts, layouts_.size()));

  // A linear program for each layout that prices have not excluded yet.
  cover_lp lp;
  std::vector<std::size_t> groups;
  std::vector<double> counts;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (all[k].excluded) continue;
    if (stop_ && stop_()) return cover_verdict::cut;
    groups.clear();
    counts.clear();
    for (std::size_t s = 0; s < grid_.sizes(); ++s) {
      if (all[k].places[s] == 0) continue;
      groups.push_back(s);
      counts.push_back(all[k].places[s]);
    }
    lp.solve(counts, demand_, [&](std::size_t g, std::span<const double> prices) {
      const std::size_t s = groups[g];
      std::size_t best = 0;
      double most = -1;
      const double* r = rates_[s].data();
      for (std::size_t c = 0; c < needed_[s].size(); ++c, r += prices.size()) {
        double worth = 0;
        for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * r[i];
        if (worth <= most) continue;
        most = worth;
        best = c;
      }
      if (needed_[s].empty()) return std::span<const double>{zeros_};
      return rates_of(s, best);
    });
    exclude(all, lp.prices());
  }
  std::erase_if(all, [](const candidate& c) { return c.excluded; });
  sort_stably(all, std::ranges::greater{}, &candidate::worth);

  // The most promising first, each with a small budget, then with larger ones.
  for (std::uint64_t budget = 50; !all.empty(); budget *= 8) {
    for (candidate& c : all) {
      node root{.places = c.places, .need = demand_, .allowed = {}};
      for (std::size_t s = 0; s < grid_.sizes(); ++s) {
        root.allowed.emplace_back(needed_[s].size());
        std::iota(root.allowed.back().begin(), root.allowed.back().end(), 0U);
      }
      chosen_.clear();
      budget_ = budget;
      const cover_verdict v = descend(root);
      if (v == cover_verdict::found) return make_plan(c) ? v : cover_verdict::cut;
      c.excluded = v == cover_verdict::none;
      if (left_ == 0 || (stop_ && stop_())) return cover_verdict::cut;
    }
    std::erase_if(all, [](const candidate& c) { return c.excluded; });
  }
  return cover_verdict::none;
}

}  // namespace cohort::packing::detail
