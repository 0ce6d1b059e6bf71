// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/prefill_pace.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <chrono>
#include <cstdint>

#include <support/random_source.hpp>

namespace cohort::kv::prefill_pace_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a curve is linear within its steps, and what is fixed is paid once") {
  const prefill_curve c{3ms, 10, {10ms, 20ms, 40ms}};
  CHECK(c.fixed() == 3ms);
  CHECK(c.between(0, 5) == 5ms);
  CHECK(c.between(5, 15) == 15ms);
  CHECK(c.between(0, 30) == 70ms);
  CHECK(c.between(7, 7) == 0ms);
  CHECK(c.prompt(25) == 3ms + 50ms);
}

TEST_CASE("beyond its last step a curve grows as it did") {
  const prefill_curve c{0ms, 10, {10ms, 30ms, 40ms}};  // 15 ms more a step.
  CHECK(c.between(30, 40) == 55ms);
  CHECK(c.between(40, 50) == 70ms);
  CHECK(c.between(20, 50) == 165ms);
  const prefill_curve flat{0ms, 10, {10ms}};
  CHECK(flat.between(0, 45) == 45ms);
  const prefill_curve falling{0ms, 10, {10ms, 8ms}};  // Noise.
  CHECK(falling.between(20, 40) == 16ms);
  CHECK(prefill_curve{}.prompt(7) == 7us);
}

TEST_CASE("a curve never falls, and its parts add up") {
  test::random_source random{5};
  for (int n = 0; n < 300; ++n) {
    std::vector<duration> steps(1 + random.below(6U));
    for (duration& d : steps) d = 1us * random.below(9000);
    const prefill_curve c{1us * random.below(100), 1 + random.below(64U), steps};
    const std::uint32_t a = random.below(300U);
    const std::uint32_t b = a + random.below(300U);
    const std::uint32_t e = b + random.below(300U);
    REQUIRE(c.between(a, b) >= 0ns);
    const duration difference = c.between(a, b) + c.between(b, e) - c.between(a, e);
    REQUIRE(std::abs(difference.count()) <= 2);
  }
}

TEST_CASE("curves and grains out of range are refused") {
  CHECK_THROWS_AS((prefill_curve{-1ns, 1, {1ms}}), config_error);
  CHECK_THROWS_AS((prefill_curve{0ns, 0, {1ms}}), config_error);
  CHECK_THROWS_AS((prefill_curve{0ns, 1, {}}), config_error);
  CHECK_THROWS_AS((prefill_curve{0ns, 1, {-1ns}}), config_error);
  CHECK_THROWS_AS(prefill_pace{0ns}, config_error);
}

TEST_CASE("what was not measured is as predicted") {
  const prefill_pace p{10ms};
  CHECK(p.stretch() == 1);
  CHECK(p.best() == 1);
}

TEST_CASE("the stretch is the mean of a run of four grains") {
  prefill_pace p{10ms};
  p.note(10ms, 20ms);
  CHECK(p.stretch() == 2);
  for (const duration took : {10ms, 10ms, 40ms}) p.note(10ms, took);
  CHECK(p.stretch() == 2);  // 80 over 40, the only run.
  CHECK(p.best() == 2);
  p.note(10ms, 60ms);  // 120 over 40.
  CHECK(p.stretch() == 3);
  CHECK(p.best() == 2);
}

TEST_CASE("small samples are joined, and counted at once") {
  prefill_pace p{10ms};
  p.note(4ms, 4ms);
  CHECK(p.stretch() == 1);
  p.note(4ms, 12ms);
  CHECK(p.stretch() == 2);
  p.note(2ms, 4ms);  // 20 over 10: a grain.
  CHECK(p.stretch() == 2);
  p.note(0ms, 5ms);  // Nothing was predicted: it is part of the next.
  CHECK(p.stretch() == 2);
  p.note(5ms, 10ms);
  CHECK(p.stretch() == doctest::Approx(35.0 / 15));
}

TEST_CASE("slower is believed at once, faster when nine of ten runs were") {
  prefill_pace p{1ms};
  for (int i = 0; i < 40; ++i) p.note(1ms, 1ms);
  CHECK(p.stretch() == 1);
  for (int i = 0; i < 4; ++i) p.note(1ms, 3ms);
  CHECK(p.stretch() == 3);
  CHECK(p.best() == 1);
  // A single hiccup is spread over its run.
  for (int i = 0; i < 4; ++i) p.note(1ms, 1ms);
  p.note(1ms, 5ms);
  CHECK(p.stretch() == 2);
  // 45 runs are kept: of those that have one of the four slow ones in them (7) more than 4 are left
  // until 41 quick ones have come behind them.
  for (int i = 0; i < 36; ++i) p.note(1ms, 1ms);
  CHECK(p.stretch() > 1);
  for (int i = 0; i < 12; ++i) p.note(1ms, 1ms);
  CHECK(p.stretch() == 1);
  CHECK(p.best() == 1);
}

TEST_CASE("the best is at most the stretch, and what is forgotten does not count") {
  test::random_source random{9};
  prefill_pace p{1ms};
  for (int n = 0; n < 3000; ++n) {
    p.note(100us * random.below(20), 100us * random.below(100));
    REQUIRE(p.best() <= p.stretch());
    REQUIRE(p.best() >= 0);
  }
  for (int n = 0; n < 60; ++n) p.note(2ms, 8ms);
  CHECK(p.stretch() == 4);
  CHECK(p.best() == 4);
}

}  // namespace
}  // namespace cohort::kv::prefill_pace_test
