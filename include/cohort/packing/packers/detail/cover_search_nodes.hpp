// SPDX-License-Identifier: Apache-2.0
/// @file
/// Branch and bound over configurations of gpu-lets: processing of the nodes.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/cover_lp.hpp>
#include <cohort/packing/packers/detail/cover_search_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

inline bool cover_search::exhausted() { return left_ == 0 || budget_ == 0 || (stop_ && stop_()); }

/// With one place left, tests the remaining demand exactly.
inline cover_verdict cover_search::finish(const node& n, std::size_t size) {
  std::vector<gpulet_load> loads;
  for (std::size_t i = 0; i < n.need.size(); ++i) {
    if (n.need[i] > 0) loads.push_back({.model = models_[i], .rate_rps = n.need[i]});
  }
  for (std::size_t s = size + 1; s-- > 0;) {
    if (!fit(grid_, s, problem_.rule, loads).feasible()) continue;
    chosen_.push_back({.size = size, .needed_size = s, .carried = n.need});
    return cover_verdict::found;
  }
  return cover_verdict::none;
}

inline cover_verdict cover_search::descend(node& n) {
  if (exhausted()) return cover_verdict::cut;
  --left_;
  --budget_;
  std::vector<std::size_t> wanted;  // Models with unserved demand.
  rates need;
  for (std::size_t i = 0; i < n.need.size(); ++i) {
    if (n.need[i] <= tolerance * demand_[i]) {
      n.need[i] = 0;
      continue;
    }
    wanted.push_back(i);
    need.push_back(n.need[i]);
  }
  if (wanted.empty()) return cover_verdict::found;
  std::vector<std::size_t> groups;
  std::vector<double> counts;
  std::uint32_t places = 0;
  for (std::size_t s = 0; s < n.places.size(); ++s) {
    if (n.places[s] == 0 || n.allowed[s].empty()) continue;
    groups.push_back(s);
    counts.push_back(n.places[s]);
    places += n.places[s];
  }
  if (places == 0) return cover_verdict::none;
  if (places == 1) return finish(n, groups.front());

  const auto worth_of = [&](std::size_t s, std::uint32_t c, std::span<const double> prices) {
    const std::span<const double> r = rates_of(s, c);
    double worth = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      worth += prices[i] * std::min(r[wanted[i]], need[i]);
    }
    return worth;
  };
  cover_lp lp;
  rates column(wanted.size());
  lp.solve(counts, need, [&](std::size_t g, std::span<const double> prices) {
    const std::size_t s = groups[g];
    double most = -1;
    std::uint32_t best = 0;
    for (const std::uint32_t c : n.allowed[s]) {
      const double worth = worth_of(s, c, prices);
      if (worth <= most) continue;
      most = worth;
      best = c;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      column[i] = std::min(rates_of(s, best)[wanted[i]], need[i]);
    }
    return std::span<const double>{column};
  });

  // The worth of each configuration, by size; then the size with the fewest useful ones.
  const std::vector<double>& prices = lp.prices();
  using priced = std::pair<double, std::uint32_t>;
  std::vector<std::vector<priced>> worth(groups.size());
  std::vector<double> most(groups.size(), 0.0);
  double total = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::uint32_t c : n.allowed[groups[g]]) {
      worth[g].emplace_back(worth_of(groups[g], c, prices), c);
      most[g] = std::max(most[g], worth[g].back().first);
    }
    total += counts[g] * most[g];
  }
  if (total < 1 - tolerance) return cover_verdict::none;
  std::size_t branch = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double least = 1 - tolerance - (total - most[g]);
    std::erase_if(worth[g], [least](const priced& p) { return p.first < least; });
    if (worth[g].size() < worth[branch].size()) branch = g;
  }
  const std::size_t size = groups[branch];
  std::vector<priced>& tries = worth[branch];
  sort_stably(tries, std::ranges::greater{}, &priced::first);

  bool cut = false;
  std::vector<std::uint32_t> tried;
  for (const priced& dearest : tries) {
    const std::uint32_t c = dearest.second;
    const std::span<const double> r = rates_of(size, c);
    // Cut to the need, it may be no better than one already tried.
    const bool dominated = std::ranges::any_of(tried, [&](std::uint32_t other) {
      const std::span<const double> o = rates_of(size, other);
      return std::ranges::all_of(wanted,
                                 [&](std::size_t i) { return std::min(r[i], n.need[i]) <= o[i]; });
    });
    if (dominated) continue;
    tried.push_back(c);
    node child{.places = n.places, .need = n.need, .allowed = n.allowed};
    --child.places[size];
    choice made{.size = size, .needed_size = needed_[size][c], .carried = rates(n.need.size())};
    for (std::size_t i = 0; i < n.need.size(); ++i) {
      made.carried[i] = std::min(r[i], n.need[i]);
      child.need[i] = std::max(0.0, n.need[i] - r[i]);
    }
    chosen_.push_back(std::move(made));
    const cover_verdict v = descend(child);
    if (v == cover_verdict::found) return v;
    chosen_.pop_back();
    cut = cut || v == cover_verdict::cut;
    if (exhausted()) return cover_verdict::cut;
    std::erase(n.allowed[size], c);
  }
  return cut ? cover_verdict::cut : cover_verdict::none;
}

/// Assigns the places to devices. @returns Whether every device has memory for its models.
inline bool cover_search::make_plan(const candidate& c) {
  plan_.clear();
  for (std::size_t g = 0; g < c.layouts.size(); ++g) {
    for (const std::size_t s : layouts_[c.layouts[g]]) {
      const auto at = std::ranges::find(chosen_, s, &choice::size);
      if (at == chosen_.end()) continue;
      std::vector<gpulet_load> loads;
      for (std::size_t i = 0; i < models_.size(); ++i) {
        if (at->carried[i] > 0) loads.push_back({.model = models_[i], .rate_rps = at->carried[i]});
      }
      const std::size_t size = at->needed_size;
      chosen_.erase(at);
      if (loads.empty()) continue;
      const duty_cycle d = fit(grid_, size, problem_.rule, loads);
      gpulet out{.gpu = device_id{static_cast<std::uint32_t>(g)},
                 .size = device_share{grid_.size_pct(size)},
                 .duty_ms = d.most_ms};
      for (const gpulet_load& l : loads) {
        out.models.push_back({.model = model_id{l.model},
                              .batch = grid_.batch_for(l.model, size, l.batch),
                              .rate_rps = l.rate_rps});
      }
      plan_.push_back(std::move(out));
    }
  }
  return memory_excess(grid_, problem_, plan_).empty();
}

}  // namespace cohort::packing::detail
