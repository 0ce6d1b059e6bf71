// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/moves/rate_forecast.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <support/random_source.hpp>

namespace cohort::packing::rate_forecast_test {
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
TEST_CASE("traffic that stops is forecast as none, and traffic that returns as it is") {
  rate_forecast f{{.level_weight = 0.6, .trend_weight = 0.4, .deviations = 0}};
  f.add(20'000, 20s);
  f.add(20'000, 20s);
  CHECK(f.expected_rps(0) == 1000);
  f.add(0, 20s);  // Level 0.4 * 1000, trend 0.4 * -600.
  CHECK(f.expected_rps(0) == doctest::Approx(400));
  CHECK(f.expected_rps(1) == doctest::Approx(160));
  f.add(0, 20s);  // Level 0.4 * 160; the trend, 0.4 * -336 + 0.6 * -240, only to 0: -64.
  CHECK(f.expected_rps(0) == doctest::Approx(64));
  CHECK(f.expected_rps(1) == 0);
  rate_forecast back = f;
  f.add(0, 20s);
  CHECK(f.expected_rps(0) == 0);
  CHECK(f.expected_rps(10) == 0);
  CHECK(f.confidence_rps(2) == 0);
  CHECK(f.plan_rps(1) == 0);
  f.add(6000, 20s);  // Level 0.6 * 300, trend 0.4 * 180.
  CHECK(f.expected_rps(0) == doctest::Approx(180));
  CHECK(f.expected_rps(1) == doctest::Approx(252));
  CHECK(f.plan_rps(1) == doctest::Approx(252));
  back.add(6000, 20s);  // Level 0.6 * 300, trend 0.4 * 116 + 0.6 * -64.
  CHECK(back.expected_rps(0) == doctest::Approx(180));
  CHECK(back.expected_rps(1) == doctest::Approx(188));
}
TEST_CASE("whatever was counted, forecasts are numbers of at least 0") {
  cohort::test::random_source random{1};
  for (int run = 0; run < 200; ++run) {
    rate_forecast f{{.level_weight = (1 + random.below(100U)) / 100.0,
                     .trend_weight = random.below(101U) / 100.0}};
    for (int period = 0; period < 30; ++period) {
      f.add(random.one_in(2) ? 0 : random.below(50'000U), 20s);
      for (const double x :
           {f.expected_rps(0), f.expected_rps(2), f.plan_rps(1), f.confidence_rps(2)}) {
        REQUIRE(std::isfinite(x));
        REQUIRE(x >= 0);
      }
    }
  }
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
  rate_forecast f;
  CHECK_THROWS_AS(f.add(1, 0s), config_error);
  CHECK_THROWS_AS(f.add(1, -1s), config_error);
  CHECK_THROWS_AS(rate_forecast({.level_weight = 0}), config_error);
  CHECK_THROWS_AS(rate_forecast({.level_weight = 1.5}), config_error);
  CHECK_THROWS_AS(rate_forecast({.trend_weight = -0.1}), config_error);
  CHECK_THROWS_AS(rate_forecast({.deviations = -1}), config_error);
}
}  // namespace
}  // namespace cohort::packing::rate_forecast_test
