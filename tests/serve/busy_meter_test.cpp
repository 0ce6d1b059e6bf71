// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/busy_meter.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::serve::busy_meter_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(duration since) { return time_point{} + 100s + since; }

TEST_CASE("nobody knows of a thread before the second sample: it is busy") {
  busy_meter m;
  CHECK(m.is_busy());
  CHECK(m.is_due(at(0ms)));
  m.sample(at(0ms), 7s);
  CHECK(m.is_busy());
  CHECK_FALSE(m.is_due(at(99ms)));
  CHECK(m.is_due(at(100ms)));
}

TEST_CASE(
    "one that has nothing to do for a quarter of the time is not busy, and for a seventh is") {
  for (const bool is_busy : {false, true}) {
    busy_meter m;
    const duration free = is_busy ? 15ms : 25ms;
    for (int i = 0; i < 5; ++i) {
      m.sample(at(i * 100ms), 3s + i * (100ms - free));
      if (i > 0) CHECK(m.is_busy() == is_busy);
    }
  }
}

TEST_CASE("the time since the last sample counts as one, however long") {
  busy_meter m;
  m.sample(at(0ms), 0s);
  m.sample(at(10s), 1s);
  CHECK_FALSE(m.is_busy());
  m.sample(at(10100ms), 1100ms);
  CHECK(m.is_busy());
}

}  // namespace
}  // namespace cohort::serve::busy_meter_test
