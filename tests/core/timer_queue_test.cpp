// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/timer_queue.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::timer_queue_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("an empty queue is never due") {
  timer_queue timers{3};
  CHECK(timers.slots() == 3);
  CHECK(timers.next() == never);
  CHECK(timers.pop_due(t0 + 1h) == timer_queue::none);
  CHECK(timers.due(2) == never);
  CHECK_FALSE(timers.is_armed(2));
}

TEST_CASE("nothing fires at never, before and after timers and more slots") {
  timer_queue timers{1};
  CHECK(timers.pop_due(never) == timer_queue::none);
  timers.arm(0, t0);
  timers.resize(3);
  CHECK(timers.slots() == 3);
  timers.arm(2, t0 + 1ms);
  CHECK(timers.pop_due(never) == 0);
  CHECK(timers.pop_due(never) == 2);
  CHECK(timers.pop_due(never) == timer_queue::none);
  CHECK(timers.next() == never);
}

TEST_CASE("what is kept at its instant keeps its place among equals; what moves is the newest") {
  timer_queue timers{3};
  timers.arm(0, t0 + 5ms);
  timers.arm(1, t0 + 5ms);
  timers.keep(0, t0 + 5ms);
  CHECK(timers.next_slot() == 0);
  timers.arm(0, t0 + 5ms);
  CHECK(timers.next_slot() == 1);
  timers.keep(2, t0 + 6ms);
  timers.keep(2, t0 + 4ms);
  CHECK(timers.next_slot() == 2);
  timers.keep(2, never);
  CHECK_FALSE(timers.is_armed(2));
}

TEST_CASE("a timer fires at its instant, not before, and once") {
  timer_queue timers{2};
  timers.arm(1, t0 + 10ms);
  CHECK(timers.is_armed(1));
  CHECK(timers.due(1) == t0 + 10ms);
  CHECK(timers.next() == t0 + 10ms);
  CHECK(timers.next_slot() == 1);
  CHECK(timers.pop_due(t0 + 10ms - 1ns) == timer_queue::none);
  CHECK(timers.pop_due(t0 + 10ms) == 1);
  CHECK_FALSE(timers.is_armed(1));
  CHECK(timers.pop_due(t0 + 10ms) == timer_queue::none);
}

TEST_CASE("timers due together fire by instant, and at one instant in the order of arming") {
  timer_queue timers{4};
  timers.arm(2, t0 + 5ms);
  timers.arm(0, t0 + 5ms);
  timers.arm(3, t0 + 1ms);
  timers.arm(1, t0 + 5ms);
  std::vector<std::uint32_t> fired;
  for (std::uint32_t slot; (slot = timers.pop_due(t0 + 9ms)) != timer_queue::none;) {
    fired.push_back(slot);
  }
  CHECK(fired == std::vector<std::uint32_t>{3, 2, 0, 1});
}

TEST_CASE("arming again replaces the instant, in both directions") {
  timer_queue timers{2};
  timers.arm(0, t0 + 10ms);
  timers.arm(1, t0 + 20ms);
  timers.arm(0, t0 + 30ms);
  CHECK(timers.next_slot() == 1);
  timers.arm(0, t0 + 5ms);
  CHECK(timers.next_slot() == 0);
  CHECK(timers.next() == t0 + 5ms);
}

TEST_CASE("arming with never disarms, and disarming twice is harmless") {
  timer_queue timers{1};
  timers.arm(0, t0 + 1ms);
  timers.arm(0, never);
  CHECK_FALSE(timers.is_armed(0));
  timers.arm(0, never);
  timers.disarm(0);
  timers.disarm(0);
  CHECK(timers.next() == never);
}

TEST_CASE("a queue grows while timers are armed") {
  timer_queue timers;
  timers.resize(1);
  timers.arm(0, t0 + 2ms);
  timers.resize(2);
  timers.arm(1, t0 + 1ms);
  CHECK(timers.pop_due(t0 + 1s) == 1);
  CHECK(timers.pop_due(t0 + 1s) == 0);
}

TEST_CASE("whatever is armed and disarmed, timers fire in time and none is lost") {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    timer_queue timers{16};
    std::vector<time_point> due(16, never);
    time_point now = t0;
    for (int step = 0; step < 1000; ++step) {
      CAPTURE(step);
      const std::uint32_t slot = random.below(16U);
      if (random.one_in(4)) {
        timers.disarm(slot);
        due[slot] = never;
      } else {
        due[slot] = now + duration{random.below(50)};
        timers.arm(slot, due[slot]);
      }
      REQUIRE(timers.next() == *std::ranges::min_element(due));
      now += duration{random.below(20)};
      for (std::uint32_t fired; (fired = timers.pop_due(now)) != timer_queue::none;) {
        REQUIRE(due[fired] <= now);
        REQUIRE(due[fired] == *std::ranges::min_element(due));
        due[fired] = never;
      }
      REQUIRE(*std::ranges::min_element(due) > now);
    }
  }
}

}  // namespace
}  // namespace cohort::timer_queue_test
