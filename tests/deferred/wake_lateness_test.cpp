// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/wake_lateness.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::deferred::wake_lateness_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{100s};

TEST_CASE("timers that fire on time need no margin") {
  wake_lateness l;
  for (int i = 0; i < 100; ++i) {
    l.ask(t0 + i * 1ms);
    l.woke(t0 + i * 1ms);
  }
  CHECK(l.distribution().count() == 100);
  CHECK(l.margin() == 0ns);
}

TEST_CASE("the margin is how late nine in ten are at most") {
  wake_lateness l;
  int changes = 0;
  for (int i = 0; i < 320; ++i) {
    l.ask(t0 + i * 10ms);
    const duration late = i % 20 == 7 ? 5ms : 300us;  // One in twenty is a hiccup.
    changes += l.woke(t0 + i * 10ms + late);
  }
  CHECK(changes == 10);  // Each 32.
  CHECK(to_ms(l.margin()) == doctest::Approx(0.3).epsilon(0.03));
}

TEST_CASE("until 32 wakes are known there is none") {
  wake_lateness l;
  for (int i = 0; i < 31; ++i) {
    l.ask(t0);
    l.woke(t0 + 1ms);
  }
  CHECK(l.margin() == 0ns);
}

TEST_CASE("calls before what was asked for, and unasked ones, tell nothing") {
  wake_lateness l;
  CHECK_FALSE(l.woke(t0));
  l.ask(t0 + 5ms);
  CHECK_FALSE(l.woke(t0 + 4ms));
  l.ask(never);
  CHECK_FALSE(l.woke(t0 + 9ms));
  CHECK(l.distribution().count() == 0);
}

}  // namespace
}  // namespace cohort::deferred::wake_lateness_test
