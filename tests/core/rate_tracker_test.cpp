// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/rate_tracker.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <cstdint>
#include <deque>
#include <random>

namespace cohort::rate_tracker_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{100s};

TEST_CASE("a window too narrow for its ticks is refused") {
  CHECK_THROWS_AS(rate_tracker{15ns}, config_error);
  CHECK_THROWS_AS(rate_tracker{0ns}, config_error);
  CHECK_THROWS_AS(rate_tracker{-1s}, config_error);
  CHECK_NOTHROW(rate_tracker{16ns});
}

TEST_CASE("a tracker that has seen no complete tick reports no rate and a Poisson stream") {
  rate_tracker tracker{160ms};
  CHECK(tracker.rate() == 0);
  CHECK(tracker.variability() == 1);
  CHECK_FALSE(tracker.add(t0));
  CHECK_FALSE(tracker.add(t0 + 9ms));
  CHECK(tracker.rate() == 0);
}

TEST_CASE("the rate counts complete ticks only: three events in the first 10 ms are 300 a second") {
  rate_tracker tracker{160ms};  // Ticks of 10 ms.
  tracker.add(t0);
  tracker.add(t0 + 1ms);
  tracker.add(t0 + 9ms);
  CHECK(tracker.add(t0 + 10ms));  // The fourth belongs to the second tick.
  CHECK(tracker.rate() == doctest::Approx(300));
  CHECK_FALSE(tracker.add(t0 + 19ms));
  CHECK(tracker.rate() == doctest::Approx(300));
  CHECK(tracker.advance(t0 + 20ms));  // (3 + 2) events in 20 ms.
  CHECK(tracker.rate() == doctest::Approx(250));
}

TEST_CASE("an empty tick counts as time without events") {
  rate_tracker tracker{160ms};
  for (int i = 0; i < 6; ++i) tracker.add(t0 + i * 1ms);
  tracker.advance(t0 + 30ms);  // 6 events in 30 ms.
  CHECK(tracker.rate() == doctest::Approx(200));
}

TEST_CASE("events leave the window when their tick does") {
  rate_tracker tracker{160ms};
  for (int i = 0; i < 8; ++i) tracker.add(t0 + i * 1ms);
  tracker.advance(t0 + 150ms);  // The 15 complete ticks end at 150 ms; the first is among them.
  CHECK(tracker.rate() == doctest::Approx(8 / 0.150));
  tracker.advance(t0 + 160ms);  // It left: 15 ticks from 10 ms to 160 ms.
  CHECK(tracker.rate() == 0);
}

TEST_CASE("a pause longer than the window empties it") {
  rate_tracker tracker{160ms};
  for (int i = 0; i < 100; ++i) tracker.add(t0 + i * 1ms);
  CHECK(tracker.advance(t0 + 1h));
  CHECK(tracker.rate() == 0);
  tracker.add(t0 + 1h + 1ms);
  tracker.advance(t0 + 1h + 20ms);
  CHECK(tracker.rate() > 0);
}

TEST_CASE("an event from before the last counts as at it") {
  rate_tracker t{160ms};
  t.add(t0);
  t.add(t0 + 9ms);
  t.add(t0 + 3ms);
  t.add(t0 + 10ms);  // A tick has passed: it held three.
  CHECK(t.rate() == doctest::Approx(300));
}
TEST_CASE("a regular stream has no variability and the rate of its gaps") {
  rate_tracker tracker{160ms};
  for (int i = 0; i <= 300; ++i) tracker.add(t0 + i * 1ms);
  CHECK(tracker.rate() == doctest::Approx(1000));
  CHECK(tracker.variability() == doctest::Approx(0).epsilon(1e-9));
}

TEST_CASE("gaps of 1 and 3 ms in turn have a squared coefficient of variation of 1/4") {
  rate_tracker tracker{160ms};
  time_point now = t0;
  for (int i = 0; i < 400; ++i) {
    tracker.add(now);
    now += i % 2 == 0 ? 1ms : 3ms;
  }
  // Mean 2, variance 1: 1 / 2^2. A window may hold one gap more of one kind.
  CHECK(tracker.variability() == doctest::Approx(0.25).epsilon(0.02));
}

TEST_CASE("variability stays at 1 until 32 gaps were seen") {
  rate_tracker tracker{160ms};
  for (int i = 0; i < 32; ++i) tracker.add(t0 + i * 1ms);  // 31 gaps.
  tracker.advance(t0 + 40ms);
  CHECK(tracker.variability() == 1);
  for (int i = 0; i < 2; ++i) tracker.add(t0 + 40ms + i * 1ms);  // 33 gaps.
  tracker.advance(t0 + 50ms);
  CHECK(tracker.variability() != 1);
}

TEST_CASE("a Poisson stream is recognised by its rate and a variability near 1") {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    std::exponential_distribution<double> gap{5000.0};  // In seconds.
    rate_tracker tracker{2s};
    double at = 0;
    while (at < 4) {
      at += gap(random);
      tracker.add(t0 + from_seconds(at));
    }
    // About 9400 events: five standard deviations are 5.2 %, and of the variability about 15 %.
    CHECK(tracker.rate() == doctest::Approx(5000).epsilon(0.052));
    CHECK(tracker.variability() == doctest::Approx(1).epsilon(0.15));
  }
}

TEST_CASE("the rate is the count of a sliding window that is recomputed from scratch") {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    rate_tracker tracker{160ns};  // Ticks of 10 ns.
    std::deque<std::int64_t> events;
    std::int64_t now = 0;
    std::int64_t reported_tick = 0;
    for (int step = 0; step < 3000; ++step) {
      CAPTURE(step);
      now += random.one_in(100) ? random.below(400) : random.below(6);
      const bool is_event = !random.one_in(4);
      const std::int64_t tick = now / 10;
      const time_point instant = t0 + duration{now};
      // The first call starts the ticks: at 0, by the first step's advance.
      if (step == 0) {
        now = 0;
        tracker.advance(t0);
        continue;
      }
      const bool ticked = is_event ? tracker.add(instant) : tracker.advance(instant);
      REQUIRE(ticked == (tick != reported_tick));
      if (ticked) {
        const std::int64_t complete = tick < 15 ? tick : 15;
        std::int64_t count = 0;
        for (const std::int64_t e : events) {
          const std::int64_t t = e / 10;
          if (t < tick && t >= tick - complete) ++count;
        }
        REQUIRE(tracker.rate() == doctest::Approx(static_cast<double>(count) * 1e9 /
                                                  (10.0 * static_cast<double>(complete))));
        reported_tick = tick;
      }
      if (is_event) events.push_back(now);
    }
  }
}

TEST_CASE("whether a tick has passed can be told before an event") {
  rate_tracker r{160ms};
  const time_point start{};
  CHECK(r.ticks_by(start));  // It has not begun.
  r.add(start);
  CHECK_FALSE(r.ticks_by(start + 10ms - 1ns));
  CHECK(r.ticks_by(start + 10ms));
  CHECK(r.add(start + 12ms));
  CHECK_FALSE(r.ticks_by(start + 20ms - 1ns));
  CHECK(r.ticks_by(start + 20ms));
}

}  // namespace
}  // namespace cohort::rate_tracker_test
