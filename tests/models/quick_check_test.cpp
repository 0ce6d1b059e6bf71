// SPDX-License-Identifier: Apache-2.0
#include <models/quick_check.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace cohort::models::quick_check_test {
namespace {

/// Runs that take these times, in order.
checked_time check(double kept_ms, const std::vector<double>& runs, const check_options& o = {}) {
  std::size_t next = 0;
  return quick_check(kept_ms, [&] { return runs.at(next++); }, o);
}

TEST_CASE("one run within the factor ends the check") {
  const checked_time same = check(10, {11});
  CHECK(same.how == drift::none);
  CHECK(same.runs == 1);
  CHECK(same.least_ms == 11);
  CHECK(check(10, {20}).how == drift::none);  // 2 · 10 is not more than twice as long.
  CHECK(check(10, {5}).how == drift::none);   // Nor is 10 / 2 less than half.
}

TEST_CASE("a machine that is busy for some runs has not become slower") {
  const checked_time busy = check(10, {80, 35, 21, 14});
  CHECK(busy.how == drift::none);
  CHECK(busy.runs == 4);
  CHECK(busy.least_ms == 14);
}

TEST_CASE("a machine that never comes near has become slower") {
  const checked_time slow = check(10, {80, 25, 40}, {.runs = 3, .runs_ms = 100});
  CHECK(slow.how == drift::slower);
  CHECK(slow.runs == 3);  // 80 + 25 = 105 ms would do, but not two runs.
  CHECK(slow.least_ms == 25);
}

TEST_CASE("short runs are tried for a while, since other work comes in bouts") {
  const checked_time slow = check(10, {30, 30, 30, 30, 30}, {.runs = 2, .runs_ms = 100});
  CHECK(slow.how == drift::slower);
  CHECK(slow.runs == 4);  // After three they have taken 90 ms, after four 120.
  CHECK(check(10, {30, 30, 30, 12, 30}, {.runs = 2, .runs_ms = 100}).how == drift::none);
}

TEST_CASE("one run that is far too short is enough: no other work makes it short") {
  const checked_time fast = check(10, {40, 4.9});
  CHECK(fast.how == drift::faster);
  CHECK(fast.runs == 2);
  CHECK(check(10, {4.9}, {.factor = 3}).how == drift::none);
}

}  // namespace
}  // namespace cohort::models::quick_check_test
