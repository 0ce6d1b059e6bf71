// SPDX-License-Identifier: Apache-2.0
/// @file
/// An upper bound, by work, on the multiple of a demand that any plan can serve.
#pragma once

#include <cohort/packing/model/feasibility.hpp>
#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>
#include <cohort/packing/model/requirements.hpp>
#include <cohort/packing/packers/detail/dense_simplex.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace cohort::packing {

namespace detail {

/// Prices of the sizes, at least 0, and the largest worth of a device at these prices.
///
/// In a gpu-let of size s with duty cycle D, a model with batch b takes the fraction L(b) / D and
/// gets a rate of at most min(b / D, r), where r is its whole demand. Per fraction taken it
/// achieves at most the rate u(s) = max min(b, r D) / L(b), with the largest D that its SLO allows.
/// So with prices w of the sizes a demand is worth at least Σ r · min w(s) / u(s), and a device at
/// most the largest Σ w of a layout: a bound for any prices. The best ones maximise a concave
/// function with one variable per size: cutting planes.
class size_prices {
 public:
  size_prices(const latency_grid& grid, const packing_problem& problem)
      : grid_{grid}, problem_{problem}, cut_(grid.sizes()), layout_(grid.sizes()) {
    places_ = std::min(grid.options().max_gpulets_per_gpu, 100 / std::max(1U, grid.size_pct(0)));
    places_ = std::max(1U, places_);
    most_.assign(grid.models() * grid.sizes(), 0.0);
    limit(std::numeric_limits<double>::infinity());
  }

  /// Limits the rates that models achieve to those useful at `multiple` times the demand.
  void limit(double multiple) {
    for (std::size_t m = 0; m < grid_.models(); ++m) {
      if (problem_.rates_rps[m] <= 0) continue;
      const double rate = multiple * problem_.rates_rps[m];
      for (std::size_t s = 0; s < grid_.sizes(); ++s) {
        double& most = most_[m * grid_.sizes() + s];
        most = 0;
        for (std::uint32_t b = 1; b <= grid_.max_batch(m); ++b) {
          const double latency = grid_.latency(m, s, b);
          const double slo = grid_.slo_ms(m);
          const double longest = problem_.rule == slo_rule::own ? slo - latency : slo / 2;
          if (latency > longest * (1 + tolerance)) break;  // Latencies do not decrease.
          most = std::max(most, std::min(b * 1e3, rate * longest * (1 + tolerance)) / latency);
        }
      }
    }
  }

  /// Lower bound on the demand's worth; leaves the work of each size in `cut_`.
  double demand_worth(std::span<const double> w) {
    std::ranges::fill(cut_, 0.0);
    double sum = 0;
    for (std::size_t m = 0; m < grid_.models(); ++m) {
      const double rate = problem_.rates_rps[m];
      if (rate <= 0) continue;
      double least = std::numeric_limits<double>::infinity();
      std::size_t at = 0;
      for (std::size_t s = 0; s < w.size(); ++s) {
        const double most = most_[m * w.size() + s];
        if (most <= 0 || w[s] / most >= least) continue;
        least = w[s] / most;
        at = s;
      }
      if (least == std::numeric_limits<double>::infinity()) return least;  // No size serves it.
      sum += rate * least;
      cut_[at] += rate / most_[m * w.size() + at];
    }
    return sum;
  }

  /// Upper bound on a device's worth; leaves its gpu-lets of each size in `layout_`.
  double device_worth(std::span<const double> w) {
    // best[k · 101 + p]: of k gpu-lets with p percent in total.
    constexpr std::size_t row = 101;
    best_.assign((places_ + 1) * row, 0.0);
    last_.assign((places_ + 1) * row, grid_.sizes());
    for (std::size_t k = 1; k <= places_; ++k) {
      for (std::size_t p = 0; p < row; ++p) {
        double& here = best_[k * row + p];
        here = best_[(k - 1) * row + p];
        for (std::size_t s = 0; s < w.size() && grid_.size_pct(s) <= p; ++s) {
          const double with = w[s] + best_[(k - 1) * row + p - grid_.size_pct(s)];
          if (with <= here) continue;
          here = with;
          last_[k * row + p] = s;
        }
      }
    }
    std::ranges::fill(layout_, 0.0);
    std::size_t p = row - 1;
    for (std::size_t k = places_; k > 0; --k) {
      const std::size_t s = last_[k * row + p];
      if (s == grid_.sizes()) continue;
      ++layout_[s];
      p -= grid_.size_pct(s);
    }
    return best_[places_ * row + row - 1];
  }

  /// By size: number of gpu-lets of the device valued last.
  [[nodiscard]] const std::vector<double>& layout() const noexcept { return layout_; }

  /// Upper bound on the multiple of the demand that can be served. Stops without improvement.
  double solve() {
    const std::size_t n = grid_.sizes();
    std::vector<double> w(n);
    for (std::size_t s = 0; s < n; ++s) w[s] = grid_.size_pct(s) / 100.0;
    // Variables: the prices, and last the demand's worth. A device is worth 1.
    std::vector<double> objective(n + 1, 0.0);
    objective[n] = 1;
    dense_simplex master{objective};
    std::vector<double> row(n + 1, 0.0);
    for (std::size_t s = 0; s < n; ++s) {
      row.assign(n + 1, 0.0);
      row[s] = std::min(places_, 100 / grid_.size_pct(s));
      master.add_row(row, 1);
    }
    double best = std::numeric_limits<double>::infinity();
    std::uint32_t idle = 0;  // Steps since it last improved.
    for (std::uint32_t step = 0; step < max_steps; ++step) {
      const double demand = demand_worth(w);
      const double device = device_worth(w);
      if (demand == std::numeric_limits<double>::infinity()) return 0;
      const double bound = demand > 0 ? problem_.gpus * device / demand : best;
      idle = bound < best * (1 - 1e-6) ? 0 : idle + 1;
      best = std::min(best, bound);
      if (idle == most_idle) break;
      for (std::size_t s = 0; s < n; ++s) row[s] = -cut_[s];
      row[n] = 1;
      master.add_row(row, 0);
      if (device > 1) {
        std::ranges::copy(layout_, row.begin());
        row[n] = 0;
        master.add_row(row, 1);
      }
      const std::vector<double> x = master.solve();
      // The linear program over the known cuts bounds all prices.
      if (x[n] > 0 && best <= problem_.gpus / x[n] * (1 + 1e-7)) break;
      w.assign(x.begin(), x.end() - 1);
    }
    return best;
  }

 private:
  static constexpr std::uint32_t max_steps = 300;
  static constexpr std::uint32_t most_idle = 30;

  const latency_grid& grid_;
  const packing_problem& problem_;
  std::uint32_t places_ = 1;
  std::vector<double> most_;  // By model, then size: u(s), requests a second.
  std::vector<double> cut_;
  std::vector<double> layout_;
  std::vector<double> best_;
  std::vector<std::size_t> last_;
};

}  // namespace detail

/// How far below 1 a bound must be to prove that a demand cannot be served: more than rounding and
/// the tolerances of plans.
inline constexpr double proof_margin = 1e-7;

/// Upper bound on the multiple of the demand that any plan can serve, from the devices' time: first
/// as if every model always had its largest throughput (the linear program over all ways to cut
/// devices and all configurations of gpu-lets has this same value), then with each batch limited to
/// the requests that arrive in the longest duty cycle that its SLO allows. Infinite without demand,
/// 0 if a model cannot be served on any size. Ignores memory.
/// @throws config_error If the problem is out of range. Complexity: some tens of passes over models
/// · sizes · batches; 1000 models: milliseconds. Pure.
[[nodiscard]] inline double work_bound(const latency_grid& grid, const packing_problem& problem) {
  check_problem(grid, problem);
  detail::size_prices prices{grid, problem};
  double bound = prices.solve();
  // Limits on batches at one multiple hold for all smaller ones; and if that multiple cannot be
  // served, no larger one can. The demand itself comes first, as most callers ask about it.
  if (bound > 1 && std::isfinite(bound)) {
    prices.limit(1);
    if (const double as_asked = prices.solve(); as_asked < 1) bound = as_asked;
  }
  for (int step = 0; step < 20 && bound > 0 && std::isfinite(bound); ++step) {
    prices.limit(bound);
    const double better = prices.solve();
    if (better >= bound * (1 - 1e-4)) return std::min(bound, better);
    bound = better;
  }
  return bound;
}

}  // namespace cohort::packing
