// SPDX-License-Identifier: Apache-2.0
/// @file
/// All rates that gpu-lets of each size can carry: the Pareto-optimal rate vectors.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

/// For each size the rate vectors b / Σ L(b) of all batch vectors b that keep the SLOs: a gpu-let
/// of that size, or of a smaller one in its place, carries a vector of rates if and only if it is
/// at most one of these. Only vectors that no other one dominates are kept. A set made for one
/// demand is far smaller: its rates are at most those of the demand. Thread safety: immutable.
class configuration_set {
 public:
  /// @param models Models of the grid that may occur; the rates are in their order.
  /// @param max_vectors Limit on batch vectors to visit, over all sizes; comparing one with 64
  /// others counts as one more.
  /// @param stop Called now and then; true gives up. None: never.
  /// @param useful_rps By model of the grid: higher rates are useless; at least 0. Empty: all are
  /// useful.
  configuration_set(const latency_grid& grid, slo_rule rule, std::vector<std::uint32_t> models,
                    std::uint64_t max_vectors = 20'000'000, std::function<bool()> stop = {},
                    std::vector<double> useful_rps = {});

  /// Whether all batch vectors were visited; if not, rates are missing.
  [[nodiscard]] bool complete() const noexcept { return complete_; }
  [[nodiscard]] const std::vector<std::uint32_t>& models() const noexcept { return models_; }
  [[nodiscard]] slo_rule rule() const noexcept { return rule_; }
  /// Whether there are configurations for rates as high as these, by model of the grid.
  [[nodiscard]] bool serves(std::span<const double> rates_rps) const noexcept {
    return std::ranges::all_of(models_, [&](std::uint32_t m) {
      return useful_rps_.empty() || rates_rps[m] <= useful_rps_[m];
    });
  }
  /// Whether it was made for limited rates.
  [[nodiscard]] bool limited() const noexcept { return !useful_rps_.empty(); }
  /// Number of configurations of a size.
  [[nodiscard]] std::size_t count(std::size_t size) const noexcept {
    return sizes_[size].size.size();
  }
  /// Rates of a configuration, requests a second, in the order of `models`.
  [[nodiscard]] std::span<const double> rates(std::size_t size, std::size_t c) const noexcept {
    return {sizes_[size].rates.data() + c * models_.size(), models_.size()};
  }
  /// The size that it needs, at most that of its place.
  [[nodiscard]] std::size_t needed_size(std::size_t size, std::size_t c) const noexcept {
    return sizes_[size].size[c];
  }

 private:
  struct list {
    std::vector<double> rates;
    std::vector<std::size_t> size;
    std::size_t prune_at = 20'000;  // Bounds the memory by removing dominated vectors early.
  };
  /// Remaining limits of the enumeration.
  struct limits {
    std::uint64_t vectors;
    std::function<bool()> stop;
  };

  void descend(const latency_grid& grid, std::size_t size, std::size_t k, double sum, double room,
               std::vector<std::uint32_t>& batches, list& into, limits& left);
  void keep_best(list& l, limits& left);
  /// Whether a smaller batch suffices: in a cycle of `duty_ms` it carries all that is useful.
  /// Smaller means taking less time; of batches with the same time only the largest is considered.
  [[nodiscard]] bool idle(const latency_grid& grid, std::size_t size, std::uint32_t m,
                          std::uint32_t batch, double duty_ms) const noexcept {
    if (useful_rps_.empty()) return false;
    std::uint32_t smaller = batch - 1;
    while (smaller > 0 && grid.latency(m, size, smaller) >= grid.latency(m, size, batch)) --smaller;
    return smaller > 0 && smaller >= useful_rps_[m] * 1e-3 * duty_ms * (1 + tolerance);
  }

  slo_rule rule_;
  std::vector<double> useful_rps_;
  std::vector<std::uint32_t> models_;
  std::vector<list> sizes_;
  bool complete_ = true;
};

inline configuration_set::configuration_set(const latency_grid& grid, slo_rule rule,
                                            std::vector<std::uint32_t> models,
                                            std::uint64_t max_vectors, std::function<bool()> stop,
                                            std::vector<double> useful_rps)
    : rule_{rule},
      useful_rps_{std::move(useful_rps)},
      models_{std::move(models)},
      sizes_(grid.sizes()) {
  // Models with tight SLOs first: they cut the search early.
  detail::sort_stably(models_, {}, [&grid](std::uint32_t m) { return grid.slo_ms(m); });
  std::vector<std::uint32_t> batches(models_.size(), 0);
  limits left{.vectors = max_vectors, .stop = std::move(stop)};
  for (std::size_t s = 0; s < grid.sizes() && complete_; ++s) {
    if (s > 0) sizes_[s] = sizes_[s - 1];
    descend(grid, s, 0, 0, std::numeric_limits<double>::infinity(), batches, sizes_[s], left);
    keep_best(sizes_[s], left);
  }
}

/// @param sum Σ L of the models before the k-th. @param room The largest Σ L that their SLOs allow.
inline void configuration_set::descend(const latency_grid& grid, std::size_t size, std::size_t k,
                                       double sum, double room, std::vector<std::uint32_t>& batches,
                                       list& into, limits& left) {
  if (k == models_.size()) {
    if (sum <= 0) return;
    if (left.vectors == 0 || (left.vectors % 1024 == 0 && left.stop && left.stop())) {
      complete_ = false;
      return;
    }
    --left.vectors;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (batches[i] > 0 && idle(grid, size, models_[i], batches[i], sum)) return;
    }
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const double rate = batches[i] / sum * 1e3;
      into.rates.push_back(limited() ? std::min(rate, useful_rps_[models_[i]]) : rate);
    }
    into.size.push_back(size);
    if (into.size.size() > into.prune_at) {
      keep_best(into, left);
      // If nearly all are worth keeping, pruning again at once would be useless.
      into.prune_at = std::max(into.prune_at, 2 * into.size.size());
    }
    return;
  }
  const std::uint32_t m = models_[k];
  batches[k] = 0;
  descend(grid, size, k + 1, sum, room, batches, into, left);
  for (std::uint32_t b = 1; b <= grid.max_batch(m) && complete_; ++b) {
    const double l = grid.latency(m, size, b);
    const double total = sum + l;
    const double most =
        std::min(room, rule_ == slo_rule::own ? grid.slo_ms(m) - l : grid.slo_ms(m) / 2);
    if (total > most * (1 + tolerance)) break;
    // The duty cycle ends no later than the SLOs allow.
    if (idle(grid, size, m, b, most)) break;
    // A larger batch in the same time makes this one pointless.
    if (b < grid.max_batch(m) && grid.latency(m, size, b + 1) <= l) continue;
    batches[k] = b;
    descend(grid, size, k + 1, total, most, batches, into, left);
  }
  batches[k] = 0;
}

/// Drops vectors dominated by another. Quadratic in the vectors kept: if stopped, it keeps those
/// visited, and the set is not complete.
inline void configuration_set::keep_best(list& l, limits& left) {
  const std::size_t n = models_.size();
  std::vector<std::size_t> order(l.size.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Relative to the largest rate of each model, so that all count alike; in descending order of the
  // sum no vector is dominated by a later one.
  std::vector<double> scale(n, 0.0);
  for (std::size_t i = 0; i < l.rates.size(); ++i) {
    scale[i % n] = std::max(scale[i % n], l.rates[i]);
  }
  std::vector<double> sum(order.size(), 0.0);
  for (std::size_t i = 0; i < l.rates.size(); ++i) {
    if (scale[i % n] > 0) sum[i / n] += l.rates[i] / scale[i % n];
  }
  detail::sort_stably(order, [&](std::size_t a, std::size_t b) {
    return sum[a] != sum[b] ? sum[a] > sum[b] : l.size[a] < l.size[b];
  });
  list kept;
  kept.prune_at = l.prune_at;
  std::size_t looked_at = 0;
  for (const std::size_t c : order) {
    if (++looked_at % 128 == 0 && left.stop && left.stop()) {
      complete_ = false;
      break;
    }
    const std::uint64_t cost = kept.size.size() / 64;
    if (left.vectors < cost) {
      complete_ = false;
      break;
    }
    left.vectors -= cost;
    const double* mine = l.rates.data() + c * n;
    bool dominated = false;
    for (std::size_t k = 0; k < kept.size.size() && !dominated; ++k) {
      const double* other = kept.rates.data() + k * n;
      dominated = true;
      for (std::size_t i = 0; i < n; ++i) {
        if (mine[i] > other[i]) {
          dominated = false;
          break;
        }
      }
    }
    if (dominated) continue;
    kept.rates.insert(kept.rates.end(), mine, mine + n);
    kept.size.push_back(l.size[c]);
  }
  l = std::move(kept);
}

}  // namespace cohort::packing
