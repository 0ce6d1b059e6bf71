// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/busy_meter.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::serve {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(duration since) { return time_point{} + 100s + since; }

TEST_CASE("a thread that has never waited is busy") {
  busy_meter m;
  CHECK(m.is_busy(at(0ms)));
  CHECK(m.is_busy(at(10s)));
}

TEST_CASE("one that waits for a quarter of the time is not busy, and for a seventh is") {
  for (const bool is_busy : {false, true}) {
    busy_meter m;
    const duration waits = is_busy ? 1500us : 2500us;
    for (duration t = 0ms; t < 1s; t += 10ms) {
      m.waited(at(t), at(t + waits));
      if (t >= 300ms) CHECK(m.is_busy(at(t + 10ms)) == is_busy);
    }
  }
}

TEST_CASE("a long wait counts for all of the time, and is forgotten after two periods") {
  busy_meter m;
  m.waited(at(0ms), at(10s));
  CHECK_FALSE(m.is_busy(at(10s)));
  CHECK_FALSE(m.is_busy(at(10s + 99ms)));
  CHECK(m.is_busy(at(10s + 199ms)));
}

TEST_CASE("a wait that began in the period before counts for each as long as it took there") {
  busy_meter m;
  m.waited(at(-1s), at(0ms));     // A period begins.
  m.waited(at(80ms), at(105ms));  // The next begins at its end.
  CHECK_FALSE(m.is_busy(at(105ms)));
  // 25 ms of 105, and then nothing: busy from the next turn on.
  CHECK(m.is_busy(at(206ms)));
}

}  // namespace
}  // namespace cohort::serve
