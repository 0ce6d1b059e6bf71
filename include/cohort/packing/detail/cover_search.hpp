// SPDX-License-Identifier: Apache-2.0
/// @file
/// Branch and bound over configurations of gpu-lets: can a demand be covered?
#pragma once

#include <cohort/packing/configuration.hpp>
#include <cohort/packing/detail/cover_lp.hpp>
#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/feasibility.hpp>
#include <cohort/packing/latency_grid.hpp>
#include <cohort/packing/layout.hpp>
#include <cohort/packing/plan.hpp>
#include <cohort/packing/requirements.hpp>

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

enum class cover_verdict : std::uint8_t { found, none, cut };

/// The search for one demand.
///
/// For prices λ ≥ 0 with λ · need = 1, a set of places can cover the need only if the largest
/// prices λ · rates of their configurations sum to at least 1. The prices come from the linear
/// program of the places that are left. A node takes the size with the fewest configurations that
/// pass this test and branches on which of them is used there, the dearest first; each one that was
/// tried is forbidden in that size for its later siblings, so no set of configurations is looked at
/// twice. The last place is decided by `fit`.
class cover_search {
 public:
  cover_search(const latency_grid& grid, const packing_problem& problem,
               const configuration_set& set, std::uint64_t max_nodes, std::function<bool()> stop);

  /// No multiple of the demand above this one can be covered. Infinite without demand.
  [[nodiscard]] double bound();
  [[nodiscard]] cover_verdict run(std::uint64_t max_combinations);
  [[nodiscard]] plan take_plan() { return std::move(plan_); }

 private:
  using rates = std::vector<double>;
  struct choice {
    std::size_t size;         // Of the place.
    std::size_t needed_size;  // Of the configuration in it.
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
  void cap_configurations();
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
  std::uint64_t budget_ = 0;           // Of the layout at hand.
  std::vector<std::uint32_t> models_;  // Those in demand.
  std::vector<std::size_t> column_;    // Of each in the configurations.
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

/// Rates above the whole demand are useless; cut to it, many configurations become alike.
inline void cover_search::cap_configurations() {
  const std::size_t n = demand_.size();
  rates_.assign(grid_.sizes(), {});
  needed_.assign(grid_.sizes(), {});
  for (std::size_t s = 0; s < grid_.sizes(); ++s) {
    rates all;
    std::vector<double> sum;
    for (std::size_t c = 0; c < set_.count(s); ++c) {
      const std::span<const double> r = set_.rates(s, c);
      double total = 0;
      for (std::size_t i = 0; i < n; ++i) {
        all.push_back(std::min(r[column_[i]], demand_[i]));
        total += all.back() / demand_[i];
      }
      sum.push_back(total);
    }
    std::vector<std::size_t> order(sum.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    sort_stably(order, std::ranges::greater{}, [&sum](std::size_t c) { return sum[c]; });
    for (const std::size_t c : order) {
      if (sum[c] <= 0) continue;
      const double* mine = all.data() + c * n;
      bool dominated = false;
      for (std::size_t k = 0; k < needed_[s].size() && !dominated; ++k) {
        const double* other = rates_[s].data() + k * n;
        dominated = true;
        for (std::size_t i = 0; i < n && dominated; ++i) dominated = mine[i] <= other[i];
      }
      if (dominated) continue;
      rates_[s].insert(rates_[s].end(), mine, mine + n);
      needed_[s].push_back(set_.needed_size(s, c));
    }
  }
}

/// The largest price of a configuration, by size.
inline std::vector<double> cover_search::worths(std::span<const double> prices) const {
  std::vector<double> w(grid_.sizes(), 0.0);
  for (std::size_t s = 0; s < w.size(); ++s) {
    const double* r = rates_[s].data();
    for (std::size_t c = 0; c < needed_[s].size(); ++c, r += prices.size()) {
      double worth = 0;
      for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * r[i];
      w[s] = std::max(w[s], worth);
    }
  }
  return w;
}

inline bool cover_search::exhausted() { return left_ == 0 || budget_ == 0 || (stop_ && stop_()); }

/// One linear program over whole devices: the best layout and the best configurations in it.
inline double cover_search::bound() {
  if (demand_.empty()) return std::numeric_limits<double>::infinity();
  const std::size_t n = demand_.size();
  std::vector<std::size_t> best(grid_.sizes());
  std::vector<double> worth(grid_.sizes());
  rates sum(n);
  const auto price = [&](std::span<const double> prices) {
    for (std::size_t s = 0; s < grid_.sizes(); ++s) {
      worth[s] = 0;
      for (std::size_t c = 0; c < set_.count(s); ++c) {
        const std::span<const double> r = set_.rates(s, c);
        double w = 0;
        for (std::size_t i = 0; i < n; ++i) w += prices[i] * r[column_[i]];
        if (w <= worth[s]) continue;
        worth[s] = w;
        best[s] = c;
      }
    }
    std::size_t top = 0;
    double most = -1;
    for (std::size_t l = 0; l < layouts_.size(); ++l) {
      double total = 0;
      for (const std::size_t s : layouts_[l]) total += worth[s];
      if (total <= most) continue;
      most = total;
      top = l;
    }
    return std::pair{most, top};
  };
  cover_lp lp;
  const double count = problem_.gpus;
  lp.solve({&count, 1}, demand_, [&](std::size_t, std::span<const double> prices) {
    const std::size_t top = price(prices).second;
    std::ranges::fill(sum, 0.0);
    for (const std::size_t s : layouts_[top]) {
      if (worth[s] <= 0) continue;
      const std::span<const double> r = set_.rates(s, best[s]);
      for (std::size_t i = 0; i < n; ++i) sum[i] += r[column_[i]];
    }
    return std::span<const double>{sum};
  });
  return count * price(lp.prices()).first;
}

inline void cover_search::exclude(std::vector<candidate>& all,
                                  std::span<const double> prices) const {
  const std::vector<double> w = worths(prices);
  for (candidate& c : all) {
    if (c.excluded) continue;
    double total = 0;
    for (std::size_t s = 0; s < w.size(); ++s) total += c.places[s] * w[s];
    c.excluded = total < 1 - tolerance;
    c.worth = std::min(c.worth, total);
  }
}

inline cover_verdict cover_search::run(std::uint64_t max_combinations) {
  if (demand_.empty()) return cover_verdict::found;
  cap_configurations();
  if (combinations(layouts_.size(), problem_.gpus, max_combinations + 1) > max_combinations) {
    // Too many to list; the bound over whole devices may still exclude them all.
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

  // A linear program for each layout that no prices have excluded yet.
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

/// One place is left: an exact test of what is still needed.
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
  std::vector<std::size_t> wanted;  // Models that still need something.
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

  // By size, what each configuration is worth; then the size with the fewest that can be used.
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
    // Cut to the need, it may be no better than one that was tried.
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

/// Gives the places to the devices. @returns Whether every device has memory for its models.
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
