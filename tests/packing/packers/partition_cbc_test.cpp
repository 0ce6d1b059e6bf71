// SPDX-License-Identifier: Apache-2.0
#include <packing/partition_cbc.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/exact_partition.hpp>

#include <packing/random_demand.hpp>

namespace cohort::packing::partition_cbc_test {
namespace {

TEST_CASE("the integer program serves what fits, to the last request") {
  // Two halves carry 8 / 18 a ms each, the whole device 8 / 9: 888.9 a second either way.
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  packing_problem p{.gpus = 2, .rates_rps = {1777.7}};
  const partition_answer yes = solve_partition_with_cbc(g, p, 10);
  CHECK(yes.complete);
  REQUIRE(yes.status == packing_status::feasible);
  CHECK(verify(g, p, yes.plan).empty());
  p.rates_rps = {1777.8};
  const partition_answer no = solve_partition_with_cbc(g, p, 10);
  CHECK(no.status == packing_status::infeasible);
  CHECK(no.plan.empty());
  // Of two columns nothing follows.
  CHECK(solve_partition_with_cbc(g, p, 10, 2).status == packing_status::unknown);
  CHECK_THROWS_AS(static_cast<void>(solve_partition_with_cbc(g, p, 0)), config_error);
}
TEST_CASE("exact and the integer program say the same of small demands") {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::vector<model_profile> profiles = test::random_profiles(random, 3);
    for (model_profile& m : profiles) {
      std::erase_if(m.latency, [](const latency_sample& s) { return s.batch > 4; });
    }
    const latency_grid g{std::move(profiles),
                         {.sizes = {20, 40, 60, 80}, .max_gpulets_per_gpu = 1 + random.below(3U)}};
    packing_problem p = test::random_problem(random, g, 1 + random.below(3U), 1);
    p.rates_rps[0] += 1;
    const double multiple = work_bound(g, p) * (0.8 + 0.2 * random.below(1000U) / 1000.0);
    for (double& r : p.rates_rps) r *= multiple;
    const partition_answer program = solve_partition_with_cbc(g, p, 5);
    if (program.status == packing_status::unknown) continue;
    const packing_result r = exact_partition{}(g, p);
    REQUIRE(r.status == program.status);
    if (r.schedulable()) {
      CHECK(verify(g, p, program.plan).empty());
      ++feasible;
    } else {
      ++infeasible;
    }
  }
  CHECK(feasible > 10);
  CHECK(infeasible > 10);
}
}  // namespace
}  // namespace cohort::packing::partition_cbc_test
