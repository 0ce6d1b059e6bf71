// SPDX-License-Identifier: Apache-2.0
/// @file
/// Branch and bound over configurations of gpu-lets: prices and bounds.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/packers/detail/cover_lp.hpp>
#include <cohort/packing/packers/detail/cover_search_state.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

/// Cuts rates to the whole demand, as more is useless; many configurations then become alike.
/// @returns Whether it finished before being stopped.
inline bool cover_search::cap_configurations() {
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
    std::size_t looked_at = 0;
    for (const std::size_t c : order) {
      if (++looked_at % 128 == 0 && stop_ && stop_()) return false;
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
  return true;
}

/// The largest worth of a configuration, by size.
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

}  // namespace cohort::packing::detail
