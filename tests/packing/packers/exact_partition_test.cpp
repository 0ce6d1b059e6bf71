// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/exact_partition.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/ideal.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>

#include <packing/random_demand.hpp>

#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>

namespace cohort::packing::exact_partition_test {
namespace {

TEST_CASE("a demand is called infeasible only if it is") {
  // Two halves carry 8 / 18 a ms each, the whole device 8 / 9: 888.9 a second either way.
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  packing_problem p{.gpus = 2, .rates_rps = {1777.7}};
  packing_result r = exact_partition{}(g, p);
  CHECK(r.status == packing_status::feasible);
  REQUIRE(r.bound);
  CHECK(*r.bound == doctest::Approx(2 * 8000 / 9.0 / 1777.7).epsilon(1e-4));
  p.rates_rps = {1777.8};
  r = exact_partition{}(g, p);
  CHECK(r.status == packing_status::infeasible);
  CHECK(cohort::test::gist(r.reason) == "no plan ... demand");
  CHECK(*r.bound < 1);
  CHECK(*r.bound > 0.9999);
}
TEST_CASE("no other packer schedules what exact calls infeasible; its plans pass the verifier") {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t seed = 1; seed <= cohort::test::seeds(150); ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 3, seed % 3 == 0),
                         {.max_gpulets_per_gpu = 2 + random.below(2U)}};
    packing_problem p = test::random_problem(random, g, 2, 2.4);
    if (random.one_in(4)) p.memory_mb = 4000;
    const packing_result r = exact_partition{}(g, p);
    CHECK(r.reason.empty() == r.schedulable());
    if (r.schedulable()) {
      ++feasible;
      const std::vector<std::string> broken = verify(g, p, r.plan);
      REQUIRE_MESSAGE(broken.empty(), broken.front());
      if (r.bound) CHECK(*r.bound >= 1 - 1e-6);
    } else {
      infeasible += r.status == packing_status::infeasible;
      for (const bool scheduled : {squishy(g, p).schedulable(), squishy_even(g, p).schedulable(),
                                   elastic{}(g, p).schedulable(), elastic_int{}(g, p).schedulable(),
                                   self_tuning{}(g, p).schedulable(), ideal{}(g, p).schedulable(),
                                   portfolio{}(g, p).schedulable()}) {
        CHECK_FALSE(scheduled);
      }
    }
  }
  CHECK(feasible > cohort::test::at_least(40));
  CHECK(infeasible > cohort::test::at_least(20));
}
TEST_CASE("less demand never becomes unschedulable") {
  for (std::uint64_t seed = 1; seed <= cohort::test::seeds(40); ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 3, seed % 2 == 0), {}};
    packing_problem p = test::random_problem(random, g, 2, 2);
    bool schedulable = false;
    const configuration_set set{g, p.rule, {0, 1, 2}};
    for (int step = 0; step < 6; ++step) {
      const packing_result r = exact_partition{}(g, p, set);
      REQUIRE(r.status != packing_status::unknown);
      if (schedulable) REQUIRE(r.schedulable());
      schedulable = r.schedulable();
      for (double& rate : p.rates_rps) rate *= random.one_in(2) ? 1 : 0.8;
    }
  }
}
TEST_CASE("a search that is cut says unknown; bad configurations are an error") {
  int unknown = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 4), {}};
    const packing_problem p = test::random_problem(random, g, 2, 2.8);
    const packing_result cut = exact_partition{{.max_nodes = 0}}(g, p);
    if (cut.status == packing_status::unknown) {
      ++unknown;
    } else {
      CHECK(cut.status == exact_partition{}(g, p).status);
    }
  }
  CHECK(unknown > 0);
  cohort::test::random_source random{9};
  const latency_grid g{test::random_profiles(random, 4), {}};
  const packing_problem p{.gpus = 1, .rates_rps = {1, 1, 0, 0}};
  const configuration_set one{g, slo_rule::own, {0}};
  CHECK_THROWS_AS(static_cast<void>(exact_partition{}(g, p, one)), config_error);
  const configuration_set sum{g, slo_rule::sum, {0, 1}};
  CHECK_THROWS_AS(static_cast<void>(exact_partition{}(g, p, sum)), config_error);
}
TEST_CASE("heuristics and what is impossible come before the configurations") {
  cohort::test::random_source random{9};
  const latency_grid g{test::random_profiles(random, 4), {}};
  int made = 0;
  const auto sets = [&](const std::vector<std::uint32_t>& models) {
    ++made;
    CHECK(models == std::vector<std::uint32_t>{1});
    return std::make_shared<const configuration_set>(g, slo_rule::own, models);
  };
  packing_problem p{.gpus = 1, .rates_rps = {0, 1, 0, 0}};
  packing_result r = exact_partition{}.with_sets(g, p, sets);
  CHECK(r.schedulable());
  REQUIRE(r.bound);  // Known without any configuration.
  CHECK(*r.bound == doctest::Approx(work_bound(g, p)));
  const exact_partition late{{.stop = [] { return true; }}};
  CHECK(late.with_sets(g, p, sets).schedulable());
  p.rates_rps[1] = 1e9;
  r = late.with_sets(g, p, sets);
  CHECK(r.status == packing_status::infeasible);
  CHECK(*r.bound < 1e-3);
  p.memory_mb = 1;
  CHECK(exact_partition{}.with_sets(g, p, sets).status == packing_status::infeasible);
  CHECK(made == 0);
}
TEST_CASE("nothing asked is served by nothing") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_result r = exact_partition{}(g, {.gpus = 1, .rates_rps = {0}});
  CHECK(r.schedulable());
  CHECK(r.plan.empty());
}
}  // namespace
}  // namespace cohort::packing::exact_partition_test
