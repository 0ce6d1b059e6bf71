// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/knee.hpp>

#include <doctest/doctest.h>

namespace cohort::packing::knee_test {
namespace {

/// Capacity `rates[i]` at size 25 (i + 1), from batches of one.
latency_grid with_capacities(std::vector<double> rates) {
  model_profile m{.name = "a", .slo_ms = 1e6};
  std::uint32_t pct = 0;
  for (const double r : rates) m.latency.push_back({1, pct += 25, 1e3 / r});
  return latency_grid{{m}, {.sizes = {25, 50, 75, 100}}};
}

TEST_CASE("the knee is where the curve of throughput bends most") {
  // Slopes of the normalised curve: 1.6, 1.6, 0.4, 0.4: it bends at 50.
  const latency_grid g = with_capacities({40, 80, 90, 100});
  CHECK(largest_curvature{}(g, 0, g.all_sizes()) == 1);
  CHECK(most_per_size{}(g, 0, g.all_sizes()) == 0);  // Equal with 50; the smaller.
  CHECK(best_marginal_gain{}(g, 0, g.all_sizes()) == 0);
}
TEST_CASE("a curve that speeds up ends at the whole device") {
  const latency_grid g = with_capacities({1, 3, 9, 100});
  CHECK(largest_curvature{}(g, 0, g.all_sizes()) == 3);
  CHECK(most_per_size{}(g, 0, g.all_sizes()) == 3);
  CHECK(best_marginal_gain{}(g, 0, g.all_sizes()) == 3);
}
TEST_CASE("the size before a plateau is the most cost-effective") {
  const latency_grid g = with_capacities({10, 30, 90, 100});
  CHECK(largest_curvature{}(g, 0, g.all_sizes()) == 2);
  CHECK(most_per_size{}(g, 0, g.all_sizes()) == 2);  // 1.2 a percent.
  CHECK(best_marginal_gain{}(g, 0, g.all_sizes()) == 2);
}
TEST_CASE("a size without capacity is never the knee") {
  // 2 L(1) on a quarter is above the SLO.
  model_profile m{.name = "a", .slo_ms = 10};
  m.latency = {{1, 25, 6}, {1, 50, 5}, {1, 75, 4.9}, {1, 100, 4.8}};
  const latency_grid g{{m}, {.sizes = {25, 50, 75, 100}}};
  CHECK(largest_curvature{}(g, 0, g.all_sizes()) == 1);
  CHECK(most_per_size{}(g, 0, g.all_sizes()) == 1);
  CHECK(best_marginal_gain{}(g, 0, g.all_sizes()) == 1);
  m.slo_ms = 1;
  const latency_grid none{{m}, {.sizes = {25, 50, 75, 100}}};
  CHECK(largest_curvature{}(none, 0, none.all_sizes()) == 3);
  CHECK(most_per_size{}(none, 0, none.all_sizes()) == 3);
  CHECK(best_marginal_gain{}(none, 0, none.all_sizes()) == 3);
}
}  // namespace
}  // namespace cohort::packing::knee_test
