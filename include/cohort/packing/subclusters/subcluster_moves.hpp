// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renumbers sub-clusters to save moves.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/subclusters/subcluster.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

namespace detail {

/// The assignment of rows to columns of a square matrix, row by row, with the largest sum: shortest
/// augmenting paths over potentials. O(n³).
[[nodiscard]] inline std::vector<std::uint32_t> heaviest_matching(std::span<const double> weight,
                                                                  std::size_t n) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // Columns count from 1; column 0 holds the row being assigned.
  std::vector<double> row_price(n, 0.0);
  std::vector<double> column_price(n + 1, 0.0);
  std::vector<std::size_t> row_of(n + 1, n);
  for (std::size_t row = 0; row < n; ++row) {
    std::vector<double> distance(n + 1, infinity);
    std::vector<std::size_t> from(n + 1, 0);
    std::vector<char> reached(n + 1, 0);
    row_of[0] = row;
    std::size_t at = 0;
    while (row_of[at] != n) {
      reached[at] = 1;
      const std::size_t r = row_of[at];
      std::size_t next = 0;
      double least = infinity;
      for (std::size_t c = 1; c <= n; ++c) {
        if (reached[c] != 0) continue;
        const double d = -weight[r * n + c - 1] - row_price[r] - column_price[c];
        if (d < distance[c]) {
          distance[c] = d;
          from[c] = at;
        }
        if (distance[c] < least) {
          least = distance[c];
          next = c;
        }
      }
      for (std::size_t c = 0; c <= n; ++c) {
        if (reached[c] != 0) {
          row_price[row_of[c]] += least;
          column_price[c] -= least;
        } else {
          distance[c] -= least;
        }
      }
      at = next;
    }
    for (; at != 0; at = from[at]) row_of[at] = row_of[from[at]];
  }
  std::vector<std::uint32_t> column(n);
  for (std::size_t c = 1; c <= n; ++c) column[row_of[c]] = static_cast<std::uint32_t>(c - 1);
  return column;
}

}  // namespace detail

/// An equally good assignment with fewer moves from `current`: sub-clusters are alike, so their
/// numbers are free. Returns `current` itself if it keeps all caps and is as good, up to rounding.
/// With at most `most_exact` sub-clusters the numbering is optimal, O(count³); with more it is
/// greedy, O(models log models). Without `current`: as given.
/// @param a Keeps all caps.
[[nodiscard]] inline subcluster_assignment with_fewest_moves(const subcluster_problem& p,
                                                             subcluster_assignment a,
                                                             std::uint32_t most_exact = 300) {
  if (p.current.empty()) return a;
  const double unit = p.average_rate() + p.effective_weight() * p.average_memory();
  if (evaluate(p, p.current).objective <= evaluate(p, a).objective + 1e-9 * unit &&
      verify(p, p.current).empty()) {
    return p.current;
  }
  std::vector<std::uint32_t> number(p.count);
  if (p.count <= most_exact) {
    std::vector<double> kept(std::size_t{p.count} * p.count, 0.0);
    for (std::size_t i = 0; i < a.size(); ++i) {
      kept[std::size_t{a[i]} * p.count + p.current[i]] += p.models[i].move_cost;
    }
    number = detail::heaviest_matching(kept, p.count);
  } else {
    // Cost saved by each pair of old and new numbers: summed over the models of the pair.
    struct pair {
      std::uint64_t key;
      double saved;
    };
    std::vector<pair> pairs;
    for (std::size_t i = 0; i < a.size(); ++i) {
      pairs.push_back({std::uint64_t{a[i]} * p.count + p.current[i], p.models[i].move_cost});
    }
    detail::sort_stably(pairs, {}, &pair::key);
    std::size_t last = 0;
    for (std::size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].key == pairs[last].key) {
        pairs[last].saved += pairs[i].saved;
      } else {
        pairs[++last] = pairs[i];
      }
    }
    pairs.resize(last + 1);
    detail::sort_stably(pairs, std::ranges::greater{}, &pair::saved);
    std::ranges::fill(number, p.count);
    std::vector<char> taken(p.count, 0);
    for (const pair& x : pairs) {
      const auto from = static_cast<std::size_t>(x.key / p.count);
      const auto to = static_cast<std::uint32_t>(x.key % p.count);
      if (number[from] != p.count || taken[to] != 0) continue;
      number[from] = to;
      taken[to] = 1;
    }
    std::uint32_t free = 0;
    for (std::uint32_t& n : number) {
      if (n != p.count) continue;
      while (taken[free] != 0) ++free;
      n = free++;
    }
  }
  subcluster_assignment renamed = a;
  for (std::uint32_t& j : renamed) j = number[j];
  return evaluate(p, renamed).move_cost < evaluate(p, a).move_cost ? renamed : a;
}

}  // namespace cohort::packing
