// SPDX-License-Identifier: Apache-2.0
/// @file
/// The most cost-effective partition size of a model: the knee of its throughput over the size.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cohort::packing {

/// Chooses, among some sizes (indices in the grid, ascending, not empty), the one at which a model
/// uses a device best. Semantics: pure; the size chosen has a capacity above 0 if any of them has.
/// Models: `largest_curvature`, `best_marginal_gain`, `most_per_size`.
template <class K>
concept knee_policy = std::copy_constructible<K> &&
                      requires(const K& k, const latency_grid& grid, std::uint32_t model,
                               std::span<const std::size_t> sizes) {
                        { k(grid, model, sizes) } noexcept -> std::same_as<std::size_t>;
                      };

/// Where the curve of capacity over size, both from 0 to 1 and with (0, 0) before the first point,
/// bends most: largest drop from the slope before a size to the slope after it, over the distance
/// between the middles of the two segments. Source: gpu-let, section 4.3. O(sizes).
struct largest_curvature {
  [[nodiscard]] std::size_t operator()(const latency_grid& grid, std::uint32_t model,
                                       std::span<const std::size_t> sizes) const noexcept {
    const std::size_t last = sizes.back();
    const double top = grid.capacity_rps(model, last);
    if (top <= 0) return last;
    std::size_t best = last;
    double most = 0;
    double x0 = 0;
    double y0 = 0;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      const double x1 = grid.size_pct(sizes[i]) / 100.0;
      const double y1 = grid.capacity_rps(model, sizes[i]) / top;
      const double x2 = grid.size_pct(sizes[i + 1]) / 100.0;
      const double y2 = grid.capacity_rps(model, sizes[i + 1]) / top;
      const double first = (y1 - y0) / (x1 - x0);
      const double second = (y2 - y1) / (x2 - x1);
      const double bend = (first - second) / ((x2 - x0) / 2);
      // κ = −y'' / (1 + y'²)^1.5, with the slope at the point as the mean of its segments.
      const double slope = (first + second) / 2;
      const double curvature = bend / std::pow(1 + slope * slope, 1.5);
      if (y1 > 0 && curvature > most) {
        most = curvature;
        best = sizes[i];
      }
      x0 = x1;
      y0 = y1;
    }
    return best;
  }
};
static_assert(knee_policy<largest_curvature>);

/// The size with the largest gain in capacity per percent over the previous size. O(sizes).
struct best_marginal_gain {
  [[nodiscard]] std::size_t operator()(const latency_grid& grid, std::uint32_t model,
                                       std::span<const std::size_t> sizes) const noexcept {
    std::size_t best = sizes.back();
    double most = 0;
    double x0 = 0;
    double y0 = 0;
    for (const std::size_t s : sizes) {
      const double x1 = grid.size_pct(s);
      const double y1 = grid.capacity_rps(model, s);
      const double gain = (y1 - y0) / (x1 - x0);
      if (y1 > 0 && gain > most) {
        most = gain;
        best = s;
      }
      x0 = x1;
      y0 = y1;
    }
    return best;
  }
};
static_assert(knee_policy<best_marginal_gain>);

/// The size with the largest capacity for each percent. O(sizes).
struct most_per_size {
  [[nodiscard]] std::size_t operator()(const latency_grid& grid, std::uint32_t model,
                                       std::span<const std::size_t> sizes) const noexcept {
    std::size_t best = sizes.back();
    double most = 0;
    for (const std::size_t s : sizes) {
      const double rate = grid.capacity_rps(model, s) / grid.size_pct(s);
      if (rate > most) {
        most = rate;
        best = s;
      }
    }
    return best;
  }
};
static_assert(knee_policy<most_per_size>);

}  // namespace cohort::packing
