// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <cohort/packing/rate_forecast.hpp>

namespace cohort::packing {
namespace {
using namespace std::chrono_literals;

TEST_CASE("the level is a weighted moving average, and the trend leads it") {
  rate_forecast f{{.level_weight = 0.5, .trend_weight = 0.5, .deviations = 0}};
  CHECK(f.plan_rps(1) == 0);
  f.add(1000, 10s);
  CHECK(f.expected_rps(0) == 100);
  CHECK(f.expected_rps(3) == 100);
  f.add(2000, 10s);  // Level 0.5 * 200 + 0.5 * 100, trend 0.5 * 50.
  CHECK(f.expected_rps(0) == 150);
  CHECK(f.expected_rps(2) == 200);
  f.add(2000, 10s);  // Level 0.5 * 200 + 0.5 * 175, trend 0.5 * 37.5 + 0.5 * 25.
  CHECK(f.expected_rps(0) == doctest::Approx(187.5));
  CHECK(f.expected_rps(1) == doctest::Approx(218.75));
}
TEST_CASE("falling rates are planned for as they are now, and never below 0") {
  rate_forecast f{{.level_weight = 1, .trend_weight = 1, .deviations = 0}};
  f.add(200, 1s);
  f.add(100, 1s);
  CHECK(f.expected_rps(1) == 0);
  CHECK(f.expected_rps(5) == 0);
  CHECK(f.plan_rps(1) == 100);
}
TEST_CASE("the margin is a number of deviations of a period's count") {
  rate_forecast f{{.level_weight = 1, .trend_weight = 0, .deviations = 2}};
  f.add(10000, 100s);  // 100 a second, give or take 1.
  CHECK(f.plan_rps(1) == doctest::Approx(102));
  CHECK(f.confidence_rps(2) == doctest::Approx(2));
  rate_forecast slow{{.level_weight = 0.5}};
  CHECK(slow.confidence_rps(1) == 0);
  slow.add(10000, 100s);
  CHECK(slow.confidence_rps(1) == doctest::Approx(std::sqrt(1 / 3.0)));
}
TEST_CASE("options out of range are errors") {
  CHECK_THROWS_AS(rate_forecast({.level_weight = 0}), config_error);
  CHECK_THROWS_AS(rate_forecast({.level_weight = 1.5}), config_error);
  CHECK_THROWS_AS(rate_forecast({.trend_weight = -0.1}), config_error);
  CHECK_THROWS_AS(rate_forecast({.deviations = -1}), config_error);
}
}  // namespace
}  // namespace cohort::packing
