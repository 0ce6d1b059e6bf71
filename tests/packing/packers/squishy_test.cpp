// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/squishy.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::squishy_test {
namespace {
using test::halves;
using test::unit_model;

TEST_CASE("a saturated model takes whole devices, and its residue is merged") {
  // Capacity 8 / 9 a ms. 1000 / s: one device saturated; 111 / s left.
  const latency_grid g{{unit_model("a", 40), unit_model("b", 40)}, halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {1000, 100}};
  const packing_result r = squishy(g, p);
  REQUIRE(r.schedulable());
  CHECK(verify(g, p, r.plan).empty());
  REQUIRE(r.plan.size() == 2);
  CHECK(r.plan[0].models ==
        std::vector<placed_model>{
            {.model = model_id{0}, .batch = 8, .rate_rps = g.capacity_rps(0, 1)}});
  CHECK(r.plan[0].duty_ms == doctest::Approx(9));
  // Residues: a: b = 4 since 3 / 0.1111 + 5 <= 40 < 4 / 0.1111 + 6, D = 35, occupancy 1 / 7;
  // b: 3 / 0.1 + 5 = 35, D = min(40, 35). Merged: D = 35, batches 4 and 4.
  CHECK(r.plan[1].duty_ms == doctest::Approx(35));
  CHECK(r.plan[1].models.size() == 2);
  CHECK(r.plan[1].models[0].batch == 4);
  CHECK(r.plan[1].models[1].batch == 4);
}
TEST_CASE("residues that cannot share open devices of their own, while there are any") {
  // SLO 8 lets nothing wait for another: 2 (2 + 2) = 8 with own, D = 4 = 2 + 2, 4 + 2 <= 8: shares.
  const latency_grid g{{unit_model("a", 5), unit_model("b", 5), unit_model("c", 5)}, halves()};
  packing_problem p{.gpus = 3, .rates_rps = {10, 10, 10}};
  packing_result r = squishy(g, p);
  REQUIRE(r.schedulable());
  CHECK(r.plan.size() == 3);
  p.gpus = 2;
  r = squishy(g, p);
  CHECK(r.status == packing_status::unknown);
  CHECK(cohort::test::gist(r.reason) == "... 2 partitions ... needed");
  CHECK(r.plan.empty());
}
TEST_CASE("squishy_even packs halves") {
  const latency_grid g{{unit_model("a", 40), unit_model("b", 40)}, halves()};
  // A half carries 8 / 18 a ms.
  const packing_problem p{.gpus = 1, .rates_rps = {430, 430}};
  const packing_result r = squishy_even(g, p);
  REQUIRE(r.schedulable());
  CHECK(r.plan.size() == 2);
  CHECK(used_pct(r.plan) == 100);
  CHECK(verify(g, p, r.plan).empty());
}
TEST_CASE("what cannot be is refused with the model and the reason") {
  const latency_grid g{{unit_model("a", 3.9), unit_model("b", 40, 900)}, halves()};
  packing_problem p{.gpus = 1, .rates_rps = {1, 0}};
  packing_result r = squishy(g, p);
  CHECK(r.status == packing_status::infeasible);
  CHECK(cohort::test::gist(r.reason) == "a: ... 4 ms ... SLO ... 3.9 ms");
  p = {.gpus = 1, .memory_mb = 800, .rates_rps = {0, 1}};
  r = squishy(g, p);
  CHECK(r.status == packing_status::infeasible);
  CHECK(cohort::test::gist(r.reason) == "b: ... 900 MB ... device ... 800");
  p.rates_rps = {0, 0};
  CHECK(squishy(g, p).schedulable());
}
TEST_CASE("a problem that is out of range is an error") {
  const latency_grid g{{unit_model("a", 40)}, halves()};
  const auto refused = [&g](const packing_problem& p) {
    CHECK_THROWS_AS(static_cast<void>(squishy(g, p)), config_error);
  };
  refused({.gpus = 0, .rates_rps = {1}});
  refused({.gpus = 1, .memory_mb = 0, .rates_rps = {1}});
  refused({.gpus = 1, .rates_rps = {1, 1}});
  refused({.gpus = 1, .rates_rps = {-1}});
  refused({.gpus = 1, .rates_rps = {1e308 * 10}});
  const packing_problem p{.gpus = 1, .rates_rps = {1}};
  CHECK_THROWS_AS(static_cast<void>(basic_squishy{.parts = 3}(g, p)), config_error);
  CHECK_THROWS_AS(static_cast<void>(basic_squishy{.parts = 0}(g, p)), config_error);
  const latency_grid one{{unit_model("a", 40)}, {.sizes = {50, 100}, .max_gpulets_per_gpu = 1}};
  CHECK_THROWS_AS(static_cast<void>(squishy_even(one, p)), config_error);
}
TEST_CASE("plans for random demands pass the verifier") {
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 5, seed % 2 == 0), {}};
    packing_problem p = test::random_problem(random, g, 3, 1.5);
    if (random.one_in(3)) p.memory_mb = 4000;
    for (const basic_squishy& packer : {squishy, squishy_even}) {
      const packing_result r = packer(g, p);
      CHECK(r.reason.empty() == r.schedulable());
      if (!r.schedulable()) continue;
      ++feasible;
      const std::vector<std::string> broken = verify(g, p, r.plan);
      REQUIRE_MESSAGE(broken.empty(), broken.front());
    }
  }
  CHECK(feasible > 100);
}
}  // namespace
}  // namespace cohort::packing::squishy_test
