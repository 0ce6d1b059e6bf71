// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/elastic_two_sided.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>

#include <packing/random_demand.hpp>
#include <support/complaint.hpp>

namespace cohort::packing::elastic_two_sided_test {
namespace {
constexpr interference_model by_l2{.l2_other = 1, .constant = 1};
constexpr interference_model harmless{.constant = 0};

TEST_CASE("what is placed first is not broken by what comes second") {
  // Alone on its half each carries 444 a second, beside the other 344 (see mutual_fit_test).
  const latency_grid g{{test::unit_model("a", 100), test::unit_model("b", 100)}, test::halves()};
  packing_problem p{.gpus = 1, .rates_rps = {341, 341}};
  const elastic_two_sided pack{by_l2};
  packing_result r = pack(g, p);
  REQUIRE(r.schedulable());
  CHECK(r.plan.size() == 2);
  CHECK(verify(g, p, r.plan, by_l2).empty());
  p.rates_rps = {440, 341};
  r = pack(g, p);
  CHECK(r.status == packing_status::unknown);
  CHECK(cohort::test::gist(r.reason) == "... no gpu-let ... neighbours");
  // Without interference both fit.
  CHECK(elastic_two_sided{harmless}(g, p).schedulable());
}
TEST_CASE("a padded grid is refused, and memory counts") {
  const latency_grid padded{{test::unit_model("a", 100)}, {.sizes = {50, 100}, .pad_for = by_l2}};
  CHECK_THROWS_AS((void)elastic_two_sided{by_l2}(padded, {.gpus = 1, .rates_rps = {1}}),
                  config_error);
  const latency_grid g{{test::unit_model("a", 100, 600), test::unit_model("b", 100, 600)},
                       test::halves()};
  packing_problem p{.gpus = 1, .memory_mb = 1200, .rates_rps = {10, 10}};
  CHECK(elastic_two_sided{by_l2}(g, p).schedulable());
  p.memory_mb = 1199;
  CHECK_FALSE(elastic_two_sided{by_l2}(g, p).schedulable());
  p.gpus = 2;
  CHECK(elastic_two_sided{by_l2}(g, p).schedulable());
}
TEST_CASE("plans for random demands pass the verifier with interference") {
  int two_sided = 0;
  int unpadded = 0;
  int padded = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::vector<model_profile> models = test::random_profiles(random, 4, seed % 4 == 0);
    const grid_options shape{.max_gpulets_per_gpu = 2 + random.below(2U)};
    const latency_grid g{models, shape};
    packing_problem p = test::random_problem(random, g, 3, 2);
    if (random.one_in(4)) p.memory_mb = 4000;
    const interference_model c{
        .l2_self = 0.1, .l2_other = 0.3, .memory_self = 0.1, .memory_other = 0.3, .constant = 0.95};
    const packing_result r = elastic_two_sided{c}(g, p);
    if (r.schedulable()) {
      ++two_sided;
      const std::vector<std::string> broken = verify(g, p, r.plan, c);
      REQUIRE_MESSAGE(broken.empty(), broken.front());
      // What interference does not forbid, it does not make possible.
      CHECK(elastic_two_sided{harmless}(g, p).schedulable());
    }
    const packing_result blind = elastic_int{}(g, p);
    unpadded += blind.schedulable() && verify(g, p, blind.plan, c).empty();
    grid_options pad = shape;
    pad.pad_for = c;
    padded += elastic_int{}(latency_grid{models, pad}, p).schedulable();
  }
  CHECK(two_sided > 30);
  CHECK(two_sided >= unpadded);
  CHECK(padded > 0);
}

TEST_CASE("without 100 among the sizes both halves of a device are used, checked from both sides") {
  const latency_grid g{{test::unit_model("a", 100), test::unit_model("b", 100)}, {.sizes = {50}}};
  const packing_problem p{.gpus = 1, .rates_rps = {440, 440}};
  const packing_result r = elastic_two_sided{}(g, p);
  REQUIRE(r.schedulable());
  CHECK(used_pct(r.plan) == 100);
}
}  // namespace
}  // namespace cohort::packing::elastic_two_sided_test
