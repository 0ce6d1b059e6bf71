// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/moves/replan_policy.hpp>

#include <doctest/doctest.h>

#include <array>

namespace cohort::packing::replan_policy_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a plan is made anew for rates beyond its margins, for violations, or to save devices") {
  using enum replan_cause;
  const replan_policy p{{.violation_threshold = 0.01, .rise = 0.1, .under_use = 0.2}};
  CHECK(p.period() == 20s);
  const std::array<double, 2> asked{100, 100};
  const auto decides = [&](double a, double b, std::uint64_t ended, std::uint64_t violated) {
    const std::array<double, 2> rates{a, b};
    return p.decide(asked, rates, rates, ended, violated);
  };
  CHECK(decides(100, 100, 1000, 0) == none);
  CHECK(decides(110, 60, 1000, 10) == none);
  CHECK(decides(111, 60, 1000, 0) == rise);
  CHECK(decides(100, 100, 1000, 11) == violations);
  CHECK(decides(80, 80, 0, 0) == none);
  CHECK(decides(80, 79, 0, 0) == spare);
  // What a new plan would be for has margins of its own: no reason for one.
  CHECK(p.decide(asked, std::array<double, 2>{100, 100}, std::array<double, 2>{140, 140}, 0, 0) ==
        none);
  CHECK_FALSE(p.violates(1000, 10));
  CHECK(p.violates(1000, 11));
}
TEST_CASE("options out of range are errors") {
  CHECK_THROWS_AS(replan_policy({.period = 0s}), config_error);
  CHECK_THROWS_AS(replan_policy({.violation_threshold = 2}), config_error);
  CHECK_THROWS_AS(replan_policy({.rise = -1}), config_error);
  CHECK_THROWS_AS(replan_policy({.under_use = 1.1}), config_error);
}
}  // namespace
}  // namespace cohort::packing::replan_policy_test
