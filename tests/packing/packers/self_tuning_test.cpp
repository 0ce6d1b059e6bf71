// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/self_tuning.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::self_tuning_test {
namespace {

TEST_CASE("no two models share a gpu-let, so small rates need more of them than with elastic") {
  const latency_grid g{
      {test::unit_model("a", 100), test::unit_model("b", 100), test::unit_model("c", 100)},
      test::halves()};
  packing_problem p{.gpus = 1, .rates_rps = {10, 10, 10}};
  CHECK(elastic{}(g, p).schedulable());
  const packing_result r = self_tuning{}(g, p);
  CHECK(r.status == packing_status::unknown);
  CHECK(cohort::test::gist(r.reason) == "c: 10 of 10 ... no gpu-let");
  p.gpus = 2;
  CHECK(self_tuning{}(g, p).plan.size() == 3);
}
TEST_CASE("when nothing large enough is free, the largest free gpu-let is used") {
  // A half carries 8 / 18 a ms and is the knee; 600 / s need one and a part of another.
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 1, .rates_rps = {600}};
  const packing_result r = self_tuning{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(verify(g, p, r.plan).empty());
}
TEST_CASE("plans for random demands pass the verifier and share nothing") {
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 4, seed % 2 == 0), {}};
    const packing_problem p = test::random_problem(random, g, 4, 2);
    const packing_result r = self_tuning{}(g, p);
    CHECK(r.reason.empty() == r.schedulable());
    if (!r.schedulable()) continue;
    ++feasible;
    const std::vector<std::string> broken = verify(g, p, r.plan);
    REQUIRE_MESSAGE(broken.empty(), broken.front());
    for (const gpulet& x : r.plan) CHECK(x.models.size() == 1);
  }
  CHECK(feasible > 60);
}
}  // namespace
}  // namespace cohort::packing::self_tuning_test
