// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides exactly whether one gpu-let can carry given rates.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>
#include <cohort/packing/model/plan.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace cohort::packing {

/// A model on a gpu-let, with the rate it must carry and the batch found for it.
struct gpulet_load {
  std::uint32_t model = 0;  ///< Index in the grid.
  double rate_rps = 0;      ///< At least 0.
  std::uint32_t batch = 1;  ///< Set by `fit`.

  friend bool operator==(const gpulet_load&, const gpulet_load&) = default;
};

/// Rates and times that are equal in exact arithmetic differ by rounding, by far less than this.
inline constexpr double tolerance = 1e-9;

namespace detail {

/// The least b ≥ r D, at least 1; above `most`, `most` + 1.
[[nodiscard]] inline std::uint32_t batch_to_carry(double rate_rps, double duty_ms,
                                                  std::uint32_t most) noexcept {
  const double b = rate_rps * 1e-3 * duty_ms;
  if (b > most * (1 + tolerance)) return most + 1;
  return std::max(1U, static_cast<std::uint32_t>(std::ceil(b * (1 - tolerance))));
}

/// Raises `b` to the least fixed point of b = ⌈r Σ L(b)⌉, where Σ L includes `extra_ms`.
/// @returns Σ L there; infinity if a batch or an SLO is exceeded on the way.
inline double settle(const latency_grid& grid, std::size_t size, slo_rule rule, double extra_ms,
                     std::span<gpulet_load> loads) noexcept {
  constexpr double none = std::numeric_limits<double>::infinity();
  for (;;) {
    double sum = extra_ms;
    for (const gpulet_load& l : loads) sum += grid.latency(l.model, size, l.batch);
    bool stable = true;
    for (gpulet_load& l : loads) {
      const double after = rule == slo_rule::own ? grid.latency(l.model, size, l.batch) : sum;
      if (sum + after > grid.slo_ms(l.model) * (1 + tolerance)) return none;
      const std::uint32_t b = batch_to_carry(l.rate_rps, sum, grid.max_batch(l.model));
      if (b <= l.batch) continue;
      if (b > grid.max_batch(l.model)) return none;
      l.batch = b;
      stable = false;
    }
    if (stable) return sum;
  }
}

}  // namespace detail

/// The duty cycle of a gpu-let.
struct duty_cycle {
  double least_ms = 0;  ///< Σ L: the device never idles.
  double most_ms = 0;   ///< Any duty cycle from `least_ms` to this one keeps all promises.

  [[nodiscard]] bool feasible() const noexcept { return least_ms > 0; }
};

/// Whether a gpu-let of the given size (index in the grid) can carry all loads, and sets their
/// batches. Each model's batch b ≥ r D, Σ L(b) ≤ D, and the SLOs as `rule` says.
///
/// Exact: any feasible (b, D) has b ≥ r D ≥ r Σ L(b), so it lies above the least fixed point of b =
/// ⌈r Σ L(b)⌉, where every latency and D = Σ L are least; hence that point is feasible if any is.
/// @returns A duty cycle that is not `feasible` if none is. No loads: not feasible. Complexity:
/// O(loads · Σ batches), in practice a few passes over the loads. Allocates nothing.
inline duty_cycle fit(const latency_grid& grid, std::size_t size, slo_rule rule,
                      std::span<gpulet_load> loads) noexcept {
  if (loads.empty()) return {};
  for (gpulet_load& l : loads) l.batch = 1;
  const double sum = detail::settle(grid, size, rule, 0, loads);
  if (!std::isfinite(sum)) return {};
  double most = std::numeric_limits<double>::infinity();
  for (gpulet_load& l : loads) {
    const double after = rule == slo_rule::own ? grid.latency(l.model, size, l.batch) : sum;
    most = std::min(most, grid.slo_ms(l.model) - after);
    if (l.rate_rps > 0) most = std::min(most, l.batch / l.rate_rps * 1e3);
  }
  return {.least_ms = sum, .most_ms = std::max(most, sum)};
}

/// The largest rate of `model`, at most `wanted_rps`, that a gpu-let can carry beside its present
/// loads (their batches are overwritten); 0 if none. Exact: for each of its batches the others
/// settle at their least batches. Allocates nothing.
inline double largest_rate(const latency_grid& grid, std::size_t size, slo_rule rule,
                           std::uint32_t model, double wanted_rps,
                           std::span<gpulet_load> others) noexcept {
  if (others.empty()) return std::min(wanted_rps, grid.capacity_rps(model, size));
  for (gpulet_load& l : others) l.batch = 1;
  double best = 0;
  // A rate that a batch cannot reach, a larger one cannot reach either: latencies do not decrease.
  for (std::uint32_t b = 1; b <= grid.max_batch(model); ++b) {
    const double latency = grid.latency(model, size, b);
    const double sum = detail::settle(grid, size, rule, latency, others);
    const double after = rule == slo_rule::own ? latency : sum;
    if (!(sum + after <= grid.slo_ms(model) * (1 + tolerance))) break;
    best = std::max(best, b / sum * 1e3);
    if (best >= wanted_rps) return wanted_rps;
  }
  return best;
}

/// The smallest size that carries `rate_rps` of a model alone; the number of sizes if none does.
[[nodiscard]] inline std::size_t least_size(const latency_grid& grid, slo_rule rule,
                                            std::uint32_t model, double rate_rps) noexcept {
  std::size_t s = 0;
  for (; s < grid.sizes(); ++s) {
    gpulet_load l{.model = model, .rate_rps = rate_rps};
    if (fit(grid, s, rule, {&l, 1}).feasible()) break;
  }
  return s;
}

}  // namespace cohort::packing
