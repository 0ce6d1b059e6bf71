// SPDX-License-Identifier: Apache-2.0
/// @file
/// A good way to share one gpu-let, for given prices of the models' rates.
#pragma once

#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace cohort::packing::detail {

/// Batches that one gpu-let runs in turn, and the worth of their rates.
struct priced_gpulet {
  double worth = 0;
  std::vector<gpulet_load> loads{};
};

/// Finds batches with rates of high worth: for some duty cycles, greedily adds the batches with the
/// highest worth per time. Not optimal, but finds models that share a gpu-let well; at least as
/// good as the best model alone. Thread safety: none.
class shared_gpulet {
 public:
  /// @param models Candidates for the gpu-let. Both arguments must outlive it.
  shared_gpulet(const latency_grid& grid, slo_rule rule, const std::vector<std::uint32_t>& models)
      : grid_{grid}, rule_{rule}, models_{models}, batch_(models.size()) {}

  /// @param prices, need By model: the worth of a unit of rate, and the number wanted.
  [[nodiscard]] priced_gpulet operator()(std::size_t size, std::span<const double> prices,
                                         std::span<const double> need) {
    priced_gpulet best;
    double shortest = std::numeric_limits<double>::infinity();
    double longest = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const std::uint32_t m = models_[i];
      const double first = grid_.latency(m, size, 1);
      shortest = std::min(shortest, first);
      longest = std::max(longest, most_cycle(m, first));
      const double rate = std::min(need[i], grid_.capacity_rps(m, size));
      if (prices[i] * rate <= best.worth) continue;
      best.worth = prices[i] * rate;
      best.loads = {{.model = m, .rate_rps = rate}};
    }
    if (!(longest > shortest)) return best;
    const double step = std::pow(longest / shortest, 1.0 / cycles);
    for (double duty = longest; duty >= shortest; duty /= step)
      fill(size, duty, prices, need, best);
    return best;
  }

 private:
  static constexpr int cycles = 24;  // To try, from the shortest useful one to the longest.

  /// The longest duty cycle beside a batch of that latency.
  [[nodiscard]] double most_cycle(std::uint32_t m, double latency) const noexcept {
    return rule_ == slo_rule::own ? grid_.slo_ms(m) - latency : grid_.slo_ms(m) / 2;
  }

  void fill(std::size_t size, double duty, std::span<const double> prices,
            std::span<const double> need, priced_gpulet& best) {
    std::ranges::fill(batch_, 0U);
    double used = 0;
    for (;;) {
      std::size_t chosen = models_.size();
      std::uint32_t larger = 0;
      double most = 0;
      for (std::size_t i = 0; i < models_.size(); ++i) {
        const std::uint32_t m = models_[i];
        const double wanted = need[i] * duty * 1e-3;
        if (prices[i] <= 0 || batch_[i] >= wanted) continue;
        const double before = batch_[i] > 0 ? grid_.latency(m, size, batch_[i]) : 0;
        for (std::uint32_t b = batch_[i] + 1; b <= grid_.max_batch(m); ++b) {
          const double latency = grid_.latency(m, size, b);
          if (used + latency - before > duty || duty > most_cycle(m, latency)) break;
          const double gain = prices[i] * (std::min<double>(b, wanted) - batch_[i]) /
                              std::max(latency - before, 1e-12);
          if (gain > most) {
            most = gain;
            chosen = i;
            larger = b;
          }
          if (b >= wanted) break;
        }
      }
      if (chosen == models_.size()) break;
      const std::uint32_t m = models_[chosen];
      used += grid_.latency(m, size, larger) -
              (batch_[chosen] > 0 ? grid_.latency(m, size, batch_[chosen]) : 0);
      batch_[chosen] = larger;
    }
    if (used <= 0) return;
    double worth = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      worth += prices[i] * std::min(batch_[i] / used * 1e3, need[i]);
    }
    if (worth <= best.worth * (1 + tolerance)) return;
    best.worth = worth;
    best.loads.clear();
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (batch_[i] == 0) continue;
      best.loads.push_back(
          {.model = models_[i], .rate_rps = std::min(batch_[i] / used * 1e3, need[i])});
    }
  }

  const latency_grid& grid_;
  slo_rule rule_;
  const std::vector<std::uint32_t>& models_;
  std::vector<std::uint32_t> batch_;
};

}  // namespace cohort::packing::detail
