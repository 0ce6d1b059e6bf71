// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/ideal.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::ideal_test {
namespace {

TEST_CASE("every way to cut the devices is tried") {
  // a runs on 75 % only, b on 25 %: one of four layouts serves both.
  model_profile a{
      .name = "a", .slo_ms = 10, .latency = {{1, 25, 9}, {1, 50, 9}, {1, 75, 5}, {1, 100, 5}}};
  model_profile b{
      .name = "b", .slo_ms = 3, .latency = {{1, 25, 1}, {1, 50, 1}, {1, 75, 1}, {1, 100, 1}}};
  const latency_grid g{{a, b}, {.sizes = {25, 50, 75, 100}}};
  const packing_problem p{.gpus = 1, .rates_rps = {200, 900}};
  const packing_result r = ideal{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(verify(g, p, r.plan).empty());
  CHECK(used_pct(r.plan) == 100);
  basic_ideal<> cut;
  cut.max_combinations = 1;  // The first is the whole device.
  CHECK(cohort::test::gist(cut(g, p).reason) == "... too many ways ...");
  cut.max_combinations = 100;
  cut.stop = [] { return true; };
  CHECK_FALSE(cut(g, p).schedulable());
  const packing_problem much{.gpus = 1, .rates_rps = {200, 1100}};
  CHECK(cohort::test::gist(ideal{}(g, much).reason) == "no way ... best fit ...");
}
TEST_CASE("plans for random demands pass the verifier") {
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 4, seed % 2 == 0),
                         {.max_gpulets_per_gpu = 1 + random.below(3U)}};
    packing_problem p = test::random_problem(random, g, 2, 1.5);
    if (random.one_in(3)) p.memory_mb = 4000;
    const packing_result r = ideal{}(g, p);
    CHECK(r.reason.empty() == r.schedulable());
    if (!r.schedulable()) continue;
    ++feasible;
    const std::vector<std::string> broken = verify(g, p, r.plan);
    REQUIRE_MESSAGE(broken.empty(), broken.front());
  }
  CHECK(feasible > 40);
}
}  // namespace
}  // namespace cohort::packing::ideal_test
