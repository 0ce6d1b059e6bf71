// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/plans/load_curve.hpp>

#include <doctest/doctest.h>

#include <limits>

namespace cohort::sim::load_curve_test {
namespace {

TEST_CASE("a load curve is linear between its points and constant outside") {
  const load_curve c{{{10, 0.5}, {20, 1.5}, {30, 0}}};
  CHECK(c(-1) == 0.5);
  CHECK(c(10) == 0.5);
  CHECK(c(12) == doctest::Approx(0.7));
  CHECK(c(20) == 1.5);
  CHECK(c(25) == doctest::Approx(0.75));
  CHECK(c(30) == 0);
  CHECK(c(1e9) == 0);
  CHECK(c.most() == 1.5);
}

TEST_CASE("a load curve refuses what is no curve") {
  using points = std::vector<load_curve::point>;
  CHECK_THROWS_AS(load_curve{points{}}, config_error);
  CHECK_THROWS_AS((load_curve{points{{0, 1}, {0, 1}}}), config_error);
  CHECK_THROWS_AS((load_curve{points{{1, 1}, {0, 1}}}), config_error);
  CHECK_THROWS_AS((load_curve{points{{0, -0.1}}}), config_error);
  CHECK_THROWS_AS((load_curve{points{{std::numeric_limits<double>::quiet_NaN(), 1}}}),
                  config_error);
}

TEST_CASE("two waves: a quarter, seven tenths at 300 s of 1800, all of it at 1320 s") {
  CHECK(two_waves(0, 1800) == doctest::Approx(0.25));
  CHECK(two_waves(300, 1800) == doctest::Approx(0.7));
  CHECK(two_waves(750, 1800) == doctest::Approx(0.25));
  CHECK(two_waves(1320, 1800) == doctest::Approx(1.0));
  CHECK(two_waves(1790, 1800) == doctest::Approx(0.25));
  CHECK(two_waves(-5, 1800) == doctest::Approx(0.25));
  // Half the length, half the time.
  CHECK(two_waves(77, 900) == doctest::Approx(two_waves(154, 1800)));
  for (int t = 0; t < 1800; ++t) CHECK(two_waves(t, 1800) <= 1);
}

}  // namespace
}  // namespace cohort::sim::load_curve_test
