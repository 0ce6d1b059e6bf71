// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <cohort/packing/replanner.hpp>

#include <cohort/packing/elastic_partition.hpp>
#include <cohort/packing/verify.hpp>

#include "random_demand.hpp"

#include <chrono>

namespace cohort::packing {
namespace {
using namespace std::chrono_literals;

const latency_grid& grid() {
  static const latency_grid g{{test::unit_model("a", 40), test::unit_model("b", 40)},
                              test::halves()};
  return g;
}
replanner_options exactly() {
  return {.forecast = {.level_weight = 1, .trend_weight = 0, .deviations = 0},
          .replan = {.period = 1s, .violation_threshold = 0.1, .rise = 0, .under_use = 0.5},
          .margin = 0.25};
}

TEST_CASE("a plan is made when a rate leaves what was planned for, with the margin") {
  replanner r{grid(), {.gpus = 2}, elastic{}, exactly()};
  const plan first = r.plan_for({80, 0});
  CHECK(r.planned_rps() == std::vector<double>{100, 0});
  CHECK(verify(grid(), {.gpus = 2, .rates_rps = {100, 0}}, first).empty());
  const std::uint64_t as_planned[] = {80, 0};
  CHECK_FALSE(r.end_period(as_planned, 80, 8));  // 10 % violated: not above the threshold.
  CHECK(r.end_period(as_planned, 80, 9));
  const std::uint64_t more[] = {80, 40};
  const std::optional<plan> next = r.end_period(more, 120, 0);
  REQUIRE(next);
  CHECK(r.planned_rps() == std::vector<double>{100, 50});
  CHECK(verify(grid(), {.gpus = 2, .rates_rps = {100, 50}}, *next).empty());
  const std::uint64_t few[] = {60, 0};
  CHECK_FALSE(r.end_period(few, 60, 0));  // 75 of 150 planned: not below half.
  const std::uint64_t fewer[] = {59, 0};
  CHECK(r.end_period(fewer, 59, 0));
}
TEST_CASE("a demand beyond the devices is scaled down until it fits") {
  replanner r{grid(), {.gpus = 1}, elastic{}, exactly()};
  // The whole device does 8 in 9 ms: at most 888.9 a second of one model.
  const plan p = r.plan_for({1000, 0});
  const double served = r.planned_rps()[0];
  CHECK(served <= 8 / 9.0 * 1000);
  CHECK(served > 8 / 9.0 * 1000 * 0.97);
  CHECK(verify(grid(), {.gpus = 1, .rates_rps = {served, 0}}, p).empty());
}
TEST_CASE("a replanner refuses what it cannot use") {
  replanner_options o = exactly();
  o.margin = -0.1;
  CHECK_THROWS_AS((replanner{grid(), {.gpus = 1}, elastic{}, o}), config_error);
  o = exactly();
  o.ahead = -1;
  CHECK_THROWS_AS((replanner{grid(), {.gpus = 1}, elastic{}, o}), config_error);
}
}  // namespace
}  // namespace cohort::packing
