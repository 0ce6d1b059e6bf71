// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/burst_margin.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::burst_margin_test {
namespace {

TEST_CASE("the margin is so many roots of what one SLO brings") {
  // 100 / s and 160 ms: 16 requests, give or take 4: a quarter more for one deviation.
  CHECK(burst_margin{1}.plan_rps(100, 160) == doctest::Approx(125));
  CHECK(burst_margin{2}.plan_rps(100, 160) == doctest::Approx(150));
  CHECK(burst_margin{0}.plan_rps(100, 160) == 100);
  CHECK(burst_margin{1}.plan_rps(0, 160) == 0);
  const latency_grid g{{test::unit_model("a", 160), test::unit_model("b", 40)}, test::halves()};
  const std::vector<double> planned = burst_margin{1}.plan_rps(g, {100, 100});
  CHECK(planned[0] == doctest::Approx(125));
  CHECK(planned[1] == doctest::Approx(150));
  CHECK_THROWS_AS(static_cast<void>(burst_margin{-1}.plan_rps(g, {1, 1})), config_error);
}
}  // namespace
}  // namespace cohort::packing::burst_margin_test
