// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ways to cut one device into gpu-lets.
#pragma once

#include <cohort/packing/model/latency_grid.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::packing {

/// Sizes (indices in a grid), descending, that one device is cut into.
using layout = std::vector<std::size_t>;

namespace detail {

/// Whether `a` results from `b` by shrinking or omitting gpu-lets.
[[nodiscard]] inline bool within_layout(const layout& a, const layout& b) noexcept {
  if (a.size() > b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] > b[i]) return false;
  }
  return true;
}

inline void extend_layout(const latency_grid& grid, layout& so_far, std::uint32_t room,
                          std::vector<layout>& into) {
  if (so_far.size() == grid.options().max_gpulets_per_gpu) {
    into.push_back(so_far);
    return;
  }
  bool extended = false;
  for (std::size_t s = so_far.empty() ? grid.sizes() : so_far.back() + 1; s-- > 0;) {
    if (grid.size_pct(s) > room) continue;
    so_far.push_back(s);
    extend_layout(grid, so_far, room - grid.size_pct(s), into);
    so_far.pop_back();
    extended = true;
  }
  if (!extended) into.push_back(so_far);
}

}  // namespace detail

/// All layouts of a device that do not result from another one by shrinking or omitting gpu-lets.
/// Their number grows fast with the number of sizes and of gpu-lets a device: 4 for sizes 20 to 100
/// and two gpu-lets, 23 for steps of 10 and four.
[[nodiscard]] inline std::vector<layout> maximal_layouts(const latency_grid& grid) {
  std::vector<layout> all;
  layout empty;
  detail::extend_layout(grid, empty, 100, all);
  std::vector<layout> kept;
  for (std::size_t i = 0; i < all.size(); ++i) {
    bool dominated = false;
    for (std::size_t k = 0; k < all.size() && !dominated; ++k) {
      dominated = k != i && detail::within_layout(all[i], all[k]) && (all[k] != all[i] || k < i);
    }
    if (!dominated) kept.push_back(all[i]);
  }
  return kept;
}

/// Number of ways to choose a layout for each of `gpus` like devices; saturates at `most`.
[[nodiscard]] inline std::uint64_t combinations(std::size_t layouts, std::uint32_t gpus,
                                                std::uint64_t most) noexcept {
  double ways = 1;  // C(layouts + gpus − 1, gpus).
  for (std::uint32_t g = 1; g <= gpus && ways <= static_cast<double>(most); ++g) {
    ways *= static_cast<double>(layouts - 1 + g) / g;
  }
  return ways >= static_cast<double>(most) ? most : static_cast<std::uint64_t>(std::llround(ways));
}

/// Steps through the choices of a layout for each device, as non-decreasing indices; starts at all
/// zeros. @returns Whether there was a next one.
inline bool next_combination(std::vector<std::size_t>& chosen, std::size_t layouts) noexcept {
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (chosen[i] + 1 >= layouts) continue;
    const std::size_t value = chosen[i] + 1;
    for (std::size_t k = i; k < chosen.size(); ++k) chosen[k] = value;
    return true;
  }
  return false;
}

}  // namespace cohort::packing
