// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/autoscale.hpp>

#include <doctest/doctest.h>

namespace cohort::deferred::autoscale_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a bad rate r asks for N r / (1 - r) more devices") {
  CHECK(advise(24, 0.2, 0).devices == 6);
  CHECK(advise(24, 0.011, 0.5).devices == 1);  // 0.27, and at least one.
  CHECK(advise(4, 1, 0).devices == 16);
}
TEST_CASE("idle devices are released, but never the last") {
  CHECK(advise(24, 0, 0.5).devices == -12);
  CHECK(advise(24, 0.01, 0.03).devices == 0);
  CHECK(advise(4, 0, 1).devices == -3);
}
TEST_CASE("the advisor adds at once and releases only after calm windows") {
  autoscale_advisor a{{.window = 1s, .keep_idle = 0, .calm_windows = 2}};
  time_point now = t0;
  CHECK_FALSE(a.advance(now, 10));
  const auto window = [&](int good, int bad, duration busy) {
    for (int i = 0; i < good; ++i) a.on_end(false);
    for (int i = 0; i < bad; ++i) a.on_end(true);
    a.on_busy(busy);
    now += 1s;
    REQUIRE(a.advance(now, 10));
    return a.advice().devices;
  };
  CHECK(window(50, 50, 10s) == 10);  // r = 0.5.
  CHECK(window(100, 0, 5s) == 0);    // Calm once: half idle.
  CHECK(window(100, 0, 7s) == -3);   // Calm twice: what both could spare.
  CHECK(window(100, 0, 5s) == 0);    // Counting starts anew.
  CHECK(a.advice().idle_fraction == doctest::Approx(0.5));
}
TEST_CASE("the advisor rejects options outside of their ranges") {
  CHECK_THROWS_AS(autoscale_advisor({.window = 0s}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.bad_threshold = 2}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.keep_idle = -1}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.calm_windows = 0}), config_error);
}
}  // namespace
}  // namespace cohort::deferred::autoscale_test
