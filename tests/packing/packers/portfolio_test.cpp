// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/portfolio.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/model/verify.hpp>

#include <packing/random_demand.hpp>

namespace cohort::packing::portfolio_test {
namespace {

TEST_CASE("the portfolio serves all that elastic serves, and more") {
  int elastic_serves = 0;
  int serves = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 5), {}};
    const packing_problem p = test::random_problem(random, g, 2, 2.2);
    const packing_result r = portfolio{}(g, p);
    const bool one = elastic{}(g, p).schedulable();
    if (one) REQUIRE(r.schedulable());
    elastic_serves += one;
    serves += r.schedulable();
    if (r.schedulable()) REQUIRE(verify(g, p, r.plan).empty());
  }
  CHECK(serves > elastic_serves);
}
TEST_CASE("it can be stopped") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  int asked = 0;
  const portfolio p{.stop = [&asked] { return ++asked > 0; }};
  CHECK_FALSE(p(g, {.gpus = 1, .rates_rps = {1e6}}).schedulable());
  CHECK(asked > 0);
}
}  // namespace
}  // namespace cohort::packing::portfolio_test
