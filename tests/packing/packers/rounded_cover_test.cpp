// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/rounded_cover.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/portfolio.hpp>

#include <packing/random_demand.hpp>

namespace cohort::packing::detail::rounded_cover_test {
namespace {

TEST_CASE("many devices are filled as the linear program says, and the plan passes the verifier") {
  int found = 0;
  int excluded = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 4), {.sizes = {20, 40, 50, 60}}};
    packing_problem p = test::random_problem(random, g, 8, 8);
    p.rates_rps[0] += 1;
    const double multiple = work_bound(g, p) * (0.85 + 0.15 * random.below(1000U) / 1000.0);
    for (double& r : p.rates_rps) r *= multiple;
    rounded_cover rounded{g, p, [&](const packing_problem& left) {
                            return portfolio{.max_orders = 2, .max_combinations = 0}(g, left);
                          }};
    const bool none = rounded.excludes({});
    excluded += none;
    std::optional<plan> made;
    for (std::uint64_t n = 0; n < 4 && !made; ++n) made = rounded(n);
    if (!made) continue;
    ++found;
    REQUIRE_FALSE(none);
    const std::vector<std::string> broken = verify(g, p, *made);
    REQUIRE_MESSAGE(broken.empty(), broken.front());
  }
  CHECK(found > 30);
  CHECK(excluded > 0);
}
TEST_CASE("nothing asked is not excluded") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {0}};
  rounded_cover rounded{g, p, [](const packing_problem&) { return packing_result{}; }};
  CHECK_FALSE(rounded.excludes({}));
}
TEST_CASE("where no rest can be packed, what whole devices carry is not a plan") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {2000}};
  rounded_cover rounded{g, p, [](const packing_problem&) { return packing_result{}; }};
  CHECK_FALSE(rounded(0));
  CHECK(rounded.excludes({}));
}
}  // namespace
}  // namespace cohort::packing::detail::rounded_cover_test
