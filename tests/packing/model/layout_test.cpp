// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/layout.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

#include <set>

namespace cohort::packing::layout_test {
namespace {

latency_grid grid_of(std::vector<std::uint32_t> sizes, std::uint32_t gpulets) {
  model_profile m{.name = "a", .slo_ms = 10};
  for (const std::uint32_t s : sizes) m.latency.push_back({1, s, 1});
  return latency_grid{{m}, {.sizes = std::move(sizes), .max_gpulets_per_gpu = gpulets}};
}

TEST_CASE("layouts are all ways to cut a device that waste nothing") {
  const latency_grid g = grid_of({20, 40, 50, 60, 80, 100}, 2);
  // 100, 80 + 20, 60 + 40, 50 + 50.
  CHECK(maximal_layouts(g) == std::vector<layout>{{5}, {4, 0}, {3, 1}, {2, 2}});
  // Partitions of 10 into at most four parts.
  CHECK(maximal_layouts(grid_of({10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, 4)).size() == 23);
  CHECK(maximal_layouts(grid_of({30, 40}, 3)) == std::vector<layout>{{1, 1}, {1, 0, 0}});
  CHECK(maximal_layouts(grid_of({60}, 1)) == std::vector<layout>{{0}});
}
TEST_CASE("combinations are stepped through once each, and counted") {
  for (std::size_t layouts = 1; layouts <= 4; ++layouts) {
    for (std::uint32_t gpus = 1; gpus <= 4; ++gpus) {
      std::vector<std::size_t> chosen(gpus, 0);
      std::set<std::vector<std::size_t>> seen;
      do {
        CHECK(std::ranges::is_sorted(chosen));
        seen.insert(chosen);
      } while (next_combination(chosen, layouts));
      CHECK(seen.size() == combinations(layouts, gpus, 1000));
    }
  }
  CHECK(combinations(4, 4, 1000) == 35);
  CHECK(combinations(23, 4, 100'000) == 14950);
  CHECK(combinations(23, 1000, 77) == 77);
}
}  // namespace
}  // namespace cohort::packing::layout_test
