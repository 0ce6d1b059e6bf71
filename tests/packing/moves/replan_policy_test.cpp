// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/moves/replan_policy.hpp>

#include <doctest/doctest.h>

#include <array>

namespace cohort::packing {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a new plan is made for risen rates, for violations, or when much is unused") {
  const replan_policy p{{.violation_threshold = 0.01, .rise = 0.1, .under_use = 0.2}};
  CHECK(p.period() == 20s);
  const std::array<double, 2> planned{100, 100};
  const auto decides = [&](double a, double b, std::uint64_t ended, std::uint64_t violated) {
    return p.decide(planned, std::array<double, 2>{a, b}, ended, violated);
  };
  CHECK_FALSE(decides(100, 100, 1000, 0));
  CHECK_FALSE(decides(110, 60, 1000, 10));
  CHECK(decides(111, 60, 1000, 0));
  CHECK(decides(100, 100, 1000, 11));
  CHECK_FALSE(decides(80, 80, 0, 0));
  CHECK(decides(80, 79, 0, 0));
}
TEST_CASE("options out of range are errors") {
  CHECK_THROWS_AS(replan_policy({.period = 0s}), config_error);
  CHECK_THROWS_AS(replan_policy({.violation_threshold = 2}), config_error);
  CHECK_THROWS_AS(replan_policy({.rise = -1}), config_error);
  CHECK_THROWS_AS(replan_policy({.under_use = 1.1}), config_error);
}
}  // namespace
}  // namespace cohort::packing
