// SPDX-License-Identifier: Apache-2.0
/// @file
/// Choose the free gpu-let for a model among those that are large enough: fit policies.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>

#include <concepts>
#include <cstddef>

namespace cohort::packing {

/// Gives a free gpu-let of size `size` a key for a model that needs `needed` (indices of the grid,
/// `size` at least `needed`): the smallest key is taken, among equals the one that became free
/// first. Semantics: a pure function. Models: `tightest`, `roomiest`, `first_free`.
template <class F>
concept fit_policy = std::copy_constructible<F> && requires(const F& f, const latency_grid& grid,
                                                            std::size_t needed, std::size_t size) {
  { f(grid, needed, size) } noexcept -> std::same_as<double>;
};

/// Best fit: the smallest. As in gpu-let's algorithm 1.
struct tightest {
  [[nodiscard]] double operator()(const latency_grid& grid, std::size_t,
                                  std::size_t size) const noexcept {
    return grid.size_pct(size);
  }
};
static_assert(fit_policy<tightest>);

/// Worst fit: the largest, so that its rest stays useful.
struct roomiest {
  [[nodiscard]] double operator()(const latency_grid& grid, std::size_t,
                                  std::size_t size) const noexcept {
    return -static_cast<double>(grid.size_pct(size));
  }
};
static_assert(fit_policy<roomiest>);

/// First fit: the one that became free first.
struct first_free {
  [[nodiscard]] double operator()(const latency_grid&, std::size_t, std::size_t) const noexcept {
    return 0;
  }
};
static_assert(fit_policy<first_free>);

}  // namespace cohort::packing
