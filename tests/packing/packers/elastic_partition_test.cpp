// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/elastic_partition.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/self_tuning.hpp>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::elastic_partition_test {
namespace {

/// Batches of one that take `ms[i]` at 25 (i + 1) percent.
model_profile single(std::string name, double slo_ms, const std::vector<double>& ms) {
  model_profile m{.name = std::move(name), .slo_ms = slo_ms};
  std::uint32_t pct = 0;
  for (const double x : ms) m.latency.push_back({1, pct += 25, x});
  return m;
}
grid_options quarters() { return {.sizes = {25, 50, 75, 100}}; }

TEST_CASE("a device is cut at the smaller of knee and need, and the rest serves the next model") {
  // Both bend at 50: capacities 50, 100, 105, 110 a second.
  const std::vector<double> ms{20, 10, 1000 / 105.0, 1000 / 110.0};
  const latency_grid g{{single("a", 40, ms), single("b", 40, ms)}, quarters()};
  packing_problem p{.gpus = 1, .rates_rps = {100, 90}};
  packing_result r = elastic{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(r.plan[0] == gpulet{.gpu = device_id{0},
                            .size = device_share{50},
                            .duty_ms = 10,
                            .models = {{.model = model_id{0}, .batch = 1, .rate_rps = 100}}});
  CHECK(r.plan[1].size == device_share{50});
  CHECK(r.plan[1].models[0].model == model_id{1});
  // A quarter carries 50 a second: needed is less than the knee.
  p.rates_rps = {45, 0};
  r = elastic{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(used_pct(r.plan) == 25);
}
TEST_CASE("a model joins a gpu-let in use if its whole part fits there, and the cut is undone") {
  const std::vector<double> ms{20, 10, 9, 8};
  const latency_grid g{{single("a", 100, ms), single("b", 100, ms)}, quarters()};
  // a needs a half; 20 ms of duty for both still carry 40 and 40: 0.8 <= 1 each.
  const packing_problem p{.gpus = 1, .rates_rps = {51, 10}};
  const packing_result r = elastic{}(g, p);
  REQUIRE(r.schedulable());
  // 51 a second on a half: D = 10, b beside it: D = 20 needs 2 of a, and batches are of one.
  CHECK(r.plan.size() == 2);
  const packing_problem q{.gpus = 1, .rates_rps = {20, 10}};
  const packing_result merged = elastic{}(g, q);
  REQUIRE(merged.schedulable());
  CHECK(merged.plan.size() == 1);  // On a quarter: D = 40, 0.8 and 0.4 requests.
  CHECK(used_pct(merged.plan) == 25);
}
TEST_CASE("what is left goes where most of it can be carried, else nothing is planned") {
  // The whole device carries 110 a second, its halves 100 each.
  const std::vector<double> ms{20, 10, 1000 / 105.0, 1000 / 110.0};
  const latency_grid g{{single("a", 40, ms)}, quarters()};
  packing_problem p{.gpus = 1, .rates_rps = {200}};
  const packing_result both = elastic{}(g, p);
  REQUIRE(both.schedulable());
  CHECK(both.plan.size() == 2);
  p.rates_rps = {200.1};
  const packing_result r = elastic{}(g, p);
  CHECK(r.status == packing_status::unknown);
  CHECK(cohort::test::gist(r.reason) == "a: 0.1 of 200.1 ... no gpu-let");
  CHECK(r.plan.empty());
}
TEST_CASE("at most max_gpulets_per_gpu on a device, and memory counts for each") {
  const std::vector<double> ms{20, 19, 18, 17};
  model_profile a = single("a", 40, ms);
  a.memory_mb = 500;
  const packing_problem p{.gpus = 1, .rates_rps = {190}};  // Four quarters carry 200.
  for (const std::uint32_t most : {1U, 2U, 4U}) {
    const latency_grid g{{a}, {.sizes = {25, 50, 75, 100}, .max_gpulets_per_gpu = most}};
    CHECK(elastic{}(g, p).schedulable() == (most == 4));
    packing_problem small = p;
    small.memory_mb = 1999;
    CHECK_FALSE(elastic{}(g, small).schedulable());
  }
}
TEST_CASE("plans for random demands pass the verifier, padded ones with interference too") {
  const interference_model c{
      .l2_self = 0.1, .l2_other = 0.7, .memory_self = 0.3, .memory_other = 0.1, .constant = 0.9};
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::vector<model_profile> models = test::random_profiles(random, 5, seed % 2 == 0);
    const std::uint32_t most = 1 + random.below(4U);
    const latency_grid plain{models, {.max_gpulets_per_gpu = most}};
    const latency_grid padded{models, {.max_gpulets_per_gpu = most, .pad_for = c}};
    packing_problem p = test::random_problem(random, plain, 3, 2);
    if (random.one_in(3)) p.memory_mb = 4000;
    const auto check = [&](const latency_grid& g, const packing_result& r) {
      CHECK(r.reason.empty() == r.schedulable());
      if (!r.schedulable()) return;
      ++feasible;
      const std::vector<std::string> broken =
          verify(g, p, r.plan, g.options().pad_for ? std::optional{c} : std::nullopt);
      REQUIRE_MESSAGE(broken.empty(), broken.front());
    };
    check(plain, elastic{}(plain, p));
    check(padded, elastic_int{}(padded, p));
    check(plain, basic_elastic<load_descending, best_marginal_gain>{}(plain, p));
  }
  CHECK(feasible > 150);
}
TEST_CASE("without 100 among the sizes both halves of a device are used") {
  const latency_grid g{{test::unit_model("a", 100), test::unit_model("b", 100)}, {.sizes = {50}}};
  // A half carries 444 a second of either.
  const packing_problem p{.gpus = 1, .rates_rps = {440, 440}};
  const packing_result r = elastic{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(verify(g, p, r.plan).empty());
  CHECK(used_pct(r.plan) == 100);
  CHECK(elastic_int{}(g, p).schedulable());
  CHECK(self_tuning{}(g, p).schedulable());
}
}  // namespace
}  // namespace cohort::packing::elastic_partition_test
