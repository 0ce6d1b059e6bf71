// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bounds the worth of one gpu-let for given prices of the models' rates.
#pragma once

#include <cohort/packing/detail/sort_stably.hpp>
#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/packers/detail/shared_gpulet.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::packing::detail {

/// max Σ price · min(b / D, need) over duty cycles D and batches b with Σ L(b) ≤ D that keep the
/// SLOs, by branch and bound. For D in an interval and each b in a range, the batches are worth at
/// most their worth at the interval's start, and Σ L(b) is at most its end; the optimum of that
/// relaxation, with one batch split, is known at once. Intervals and ranges are halved while the
/// bound is too high. If cut by `max_nodes`, the result is still a bound. Thread safety: none.
class gpulet_worth {
 public:
  /// The result.
  struct answer {
    double most = 0;       ///< Upper bound of the worth.
    priced_gpulet best{};  ///< The best one found, at least as good as `known`.
  };

  /// @param models Candidates for the gpu-let. Both references must outlive it.
  gpulet_worth(const latency_grid& grid, slo_rule rule, const std::vector<std::uint32_t>& models)
      : grid_{grid}, rule_{rule}, models_{models} {}

  /// @param known A feasible solution to start from.
  /// @param precision Relative: bounds this close to the best are not explored.
  [[nodiscard]] answer operator()(std::size_t size, std::span<const double> prices,
                                  std::span<const double> need, priced_gpulet known,
                                  double precision = 1e-4, std::uint32_t max_nodes = 20'000) {
    answer a{.most = known.worth, .best = std::move(known)};
    node root;
    root.shortest = 1e300;
    for (const std::uint32_t m : models_) {
      const double first = grid_.latency(m, size, 1);
      if (most_cycle(m, first) < first * (1 - tolerance)) {
        root.range.push_back({0, 0});
        continue;
      }
      root.shortest = std::min(root.shortest, first);
      root.longest = std::max(root.longest, most_cycle(m, first));
      root.range.push_back({0, grid_.max_batch(m)});
    }
    std::vector<node> open;
    if (root.longest > 0) open.push_back(std::move(root));
    std::uint32_t nodes = 0;
    while (!open.empty()) {
      node n = std::move(open.back());
      open.pop_back();
      const double bound = relax(n, size, prices, need, a);
      if (bound <= a.best.worth * (1 + precision) || split_ == none) {
        a.most = std::max(a.most, bound);
        continue;
      }
      if (++nodes >= max_nodes) {
        a.most = std::max(a.most, bound);
        for (node& rest : open) a.most = std::max(a.most, relax(rest, size, prices, need, a));
        break;
      }
      node other = n;
      if (n.longest > n.shortest * narrow) {
        n.longest = other.shortest = std::sqrt(n.shortest * n.longest);
      } else {
        n.range[split_].most = at_;
        other.range[split_].least = at_ + 1;
      }
      open.push_back(std::move(n));
      open.push_back(std::move(other));
    }
    a.most = std::max(a.most, a.best.worth);
    return a;
  }

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  /// Intervals of the duty cycle are not halved below this ratio; then ranges of batches are.
  static constexpr double narrow = 1.0005;

  struct batches {
    std::uint32_t least = 0;  // 0: the model may be left out.
    std::uint32_t most = 0;
  };
  struct node {
    double shortest = 0;  // Range of the duty cycle.
    double longest = 0;
    std::vector<batches> range{};
  };
  /// A step from one batch of a model to a larger one.
  struct piece {
    double gain = 0;  // Per ms.
    double ms = 0;
    std::size_t model = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };

  [[nodiscard]] double most_cycle(std::uint32_t m, double latency) const noexcept {
    return rule_ == slo_rule::own ? grid_.slo_ms(m) - latency : grid_.slo_ms(m) / 2;
  }
  [[nodiscard]] double ms(std::size_t i, std::size_t size, std::uint32_t b) const noexcept {
    return b == 0 ? 0 : grid_.latency(models_[i], size, b);
  }

  /// The bound of a node; chooses what to split, and keeps solutions that it finds.
  double relax(const node& n, std::size_t size, std::span<const double> prices,
               std::span<const double> need, answer& a) {
    split_ = none;
    pieces_.clear();
    batch_.assign(models_.size(), 0);
    double used = 0;
    double worth = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      const std::uint32_t low = n.range[i].least;
      const auto value = [&](std::uint32_t b) {
        return prices[i] * std::min(b / n.shortest * 1e3, need[i]);
      };
      std::uint32_t high = low;
      for (std::uint32_t b = std::max(1U, low); b <= n.range[i].most; ++b) {
        if (n.shortest > most_cycle(models_[i], ms(i, size, b)) * (1 + tolerance)) break;
        if (ms(i, size, b) > n.longest * (1 + tolerance)) break;
        high = b;
        if (b >= need[i] * 1e-3 * n.longest) break;  // A larger batch is of no use.
      }
      if (low > 0 && n.shortest > most_cycle(models_[i], ms(i, size, low)) * (1 + tolerance)) {
        return 0;
      }
      batch_[i] = low;
      used += ms(i, size, low);
      worth += value(low);
      // The concave hull of worth over time.
      for (std::uint32_t from = low; from < high;) {
        piece best{.gain = -1, .model = i, .from = from};
        for (std::uint32_t b = from + 1; b <= high; ++b) {
          const double more = std::max(ms(i, size, b) - ms(i, size, from), 1e-12);
          const double gain = (value(b) - value(from)) / more;
          if (gain < best.gain) continue;
          best.gain = gain;
          best.ms = more;
          best.to = b;
        }
        if (best.gain <= 0) break;
        pieces_.push_back(best);
        from = best.to;
      }
    }
    if (used > n.longest * (1 + tolerance)) return 0;
    sort_stably(pieces_, std::ranges::greater{}, &piece::gain);
    double bound = worth;
    double left = n.longest * (1 + tolerance) - used;
    for (const piece& p : pieces_) {
      if (p.ms <= left) {
        left -= p.ms;
        bound += p.gain * p.ms;
        batch_[p.model] = p.to;
        continue;
      }
      bound += p.gain * left;
      split_ = p.model;
      at_ = p.from + (p.to - p.from - 1) / 2;
      break;
    }
    if (split_ == none && n.longest > n.shortest * narrow) split_ = 0;  // Split its interval.
    try_batches(size, prices, need, a);
    return bound;
  }

  void try_batches(std::size_t size, std::span<const double> prices, std::span<const double> need,
                   answer& a) {
    double sum = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) sum += ms(i, size, batch_[i]);
    if (sum <= 0) return;
    double worth = 0;
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (batch_[i] == 0) continue;
      if (sum > most_cycle(models_[i], ms(i, size, batch_[i]))) return;
      worth += prices[i] * std::min(batch_[i] / sum * 1e3, need[i]);
    }
    if (worth <= a.best.worth) return;
    a.best.worth = worth;
    a.best.loads.clear();
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (batch_[i] == 0) continue;
      a.best.loads.push_back(
          {.model = models_[i], .rate_rps = std::min(batch_[i] / sum * 1e3, need[i])});
    }
  }

  const latency_grid& grid_;
  slo_rule rule_;
  const std::vector<std::uint32_t>& models_;
  std::vector<piece> pieces_;
  std::vector<std::uint32_t> batch_;
  std::size_t split_ = none;
  std::uint32_t at_ = 0;
};

}  // namespace cohort::packing::detail
