// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/early_refusal.hpp>

#include <doctest/doctest.h>

#include <cohort/sim/simulation.hpp>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <utility>

namespace cohort::engine::early_refusal_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(duration since) { return time_point{} + 100s + since; }
constexpr model_id only{0};

/// Ten requests were served, and sixteen were dropped before 30 others.
early_refusal overloaded() {
  early_refusal r;
  r.add_model(only, 100ms);
  r.on_batch(only, 10, 10, 30, at(0ms));
  for (int i = 0; i < 16; ++i) r.on_drop(only, 30, at(0ms));
  return r;
}
arrival_outlook usual(std::uint32_t ahead) {
  return {.ahead = ahead, .target = 8, .batch = 50ms, .slack = 100ms, .until_a_start = 10ms};
}

TEST_CASE("a model is overloaded once a fifth of its requests, and 16, were bad, for ten SLOs") {
  early_refusal r;
  r.add_model(only, 100ms);
  CHECK_FALSE(r.is_overloaded(only, at(0ms)));
  r.on_batch(only, 70, 70, 0, at(0ms));
  for (int i = 0; i < 17; ++i) r.on_drop(only, 30, at(0ms));
  CHECK_FALSE(r.is_overloaded(only, at(1ms)));  // 17 of 87.
  r.on_drop(only, 30, at(2ms));
  CHECK(r.is_overloaded(only, at(2ms)));  // 18 of 88.
  CHECK(r.is_overloaded(only, at(1001ms)));
  CHECK_FALSE(r.is_overloaded(only, at(1002ms)));
  r.on_drop(only, 5, at(3000ms));  // Learned anew.
  CHECK(r.room(only) == doctest::Approx(4.9));
  for (int i = 0; i < 14; ++i) r.on_drop(only, 5, at(3000ms));
  CHECK_FALSE(r.is_overloaded(only, at(3000ms)));  // All of 15.
  r.on_drop(only, 5, at(3000ms));
  CHECK(r.is_overloaded(only, at(3000ms)));
}

TEST_CASE("as many may wait as did when one was dropped, and a little less") {
  early_refusal r = overloaded();
  CHECK(r.room(only) == doctest::Approx(28.4));
  CHECK_FALSE(r.judge(only, usual(28), at(20ms)));
  const auto again = r.judge(only, usual(29), at(20ms));
  REQUIRE(again);
  CHECK(to_ms(*again) == doctest::Approx(3.2));  // 30 − 28.4 at 10 in 20 ms.
  CHECK(r.room(only) == doctest::Approx(28.403));
}

TEST_CASE("who has more time may wait behind more, and who has less behind fewer") {
  early_refusal r = overloaded();
  arrival_outlook a = usual(14);
  a.slack = 75ms;  // 25 of the usual 50 ms: 14.2.
  CHECK_FALSE(r.judge(only, a, at(20ms)));
  a.ahead = 15;
  CHECK(r.judge(only, a, at(20ms)));
  a = usual(42);
  a.slack = 150ms;
  CHECK_FALSE(r.judge(only, a, at(20ms)));
}

TEST_CASE("the room is never below the target") {
  early_refusal r = overloaded();
  for (int i = 0; i < 1000; ++i) r.on_drop(only, 30, at(1ms));
  CHECK(r.room(only) == 0);
  CHECK_FALSE(r.judge(only, usual(7), at(20ms)));
  CHECK(r.judge(only, usual(8), at(20ms)));
}

TEST_CASE("no device will be free in time") {
  early_refusal r = overloaded();
  arrival_outlook a = usual(0);
  a.until_a_start = 50ms;
  CHECK_FALSE(r.judge(only, a, at(20ms)));
  a.until_a_start = 51ms;
  CHECK(r.judge(only, a, at(20ms)) == 1ms);
  a.until_a_start = unbounded;  // None works.
  CHECK(r.judge(only, a, at(20ms)) == 100ms);
}

TEST_CASE("a batch that had time for some who were refused makes room for more") {
  early_refusal r = overloaded();
  r.on_batch(only, 5, 7, 0, at(20ms));  // Nobody was refused.
  CHECK(r.room(only) == doctest::Approx(28.4));
  REQUIRE(r.judge(only, usual(29), at(20ms)));
  r.on_batch(only, 5, 7, 3, at(21ms));  // Others wait: it was not for lack of them.
  CHECK(r.room(only) == doctest::Approx(28.403));
  REQUIRE(r.judge(only, usual(29), at(22ms)));
  r.on_batch(only, 5, 7, 0, at(23ms));  // One could have been in it: as many as 80 drops.
  CHECK(r.room(only) == doctest::Approx(28.406 + 8));
}

TEST_CASE("a model that is served worse than those beside it may let more wait in vain") {
  constexpr model_id other{1};
  constexpr model_id elsewhere{2};
  early_refusal r;
  r.add_model(only, 100ms);
  r.add_model(other, 100ms);
  r.add_model(elsewhere, 100ms, deferred::pool_id{1});
  r.on_batch(only, 10, 10, 30, at(0ms));
  for (int i = 0; i < 30; ++i) r.on_drop(only, 30, at(0ms));
  r.on_batch(other, 30, 30, 30, at(0ms));
  for (int i = 0; i < 9; ++i) r.on_drop(other, 30, at(0ms));
  r.on_batch(elsewhere, 1000, 1000, 30, at(0ms));
  for (int i = 0; i < 300; ++i) r.on_drop(elsewhere, 50, at(0ms));
  // With that which is refused here 10 of 41 are served; and 40 of 80 of both: 2.05 times as many.
  const double before = r.room(only);
  REQUIRE(r.judge(only, usual(30), at(20ms)));
  CHECK(r.room(only) - before == doctest::Approx(0.003 * 2.05 * 2.05));
  // 30 of 40, which is more than of both.
  const double others = r.room(other);
  REQUIRE(r.judge(other, usual(30), at(20ms)));
  CHECK(r.room(other) - others == doctest::Approx(0.003));
}

TEST_CASE("options out of range") {
  const auto fails = [](const refusal_options& o) {
    CHECK_THROWS_AS(early_refusal{o}, config_error);
  };
  fails({.overload = 0});
  fails({.overload = 1.1});
  fails({.tolerance = 0});
  fails({.tolerance = 2});
}

/// One model on some devices, at so many times what they can do.
sim::workload overload_of(std::uint32_t devices, duration slo) {
  sim::workload w;
  w.devices = devices;
  w.models = {{.name = "a", .latency = linear_latency{5ms, 1ms}, .slo = slo}};
  w.warmup = 1s;
  w.measured = 4s;
  return w;
}
template <class Scheduler>
sim::run_result run(const sim::workload& w, Scheduler s, double rate, bool refuses,
                    std::uint64_t seed) {
  return sim::simulation<Scheduler>{
      w, std::move(s), {.rate = rate, .seed = seed, .refusals = {.is_on = refuses}}}
      .run();
}

TEST_CASE(
    "three times the load: nearly all that is not served is refused, and as many are served") {
  for (const std::uint32_t devices : {1U, 4U, 8U}) {
    for (const duration slo : {duration{25ms}, duration{100ms}}) {
      CAPTURE(devices);
      CAPTURE(slo.count());
      const sim::workload w = overload_of(devices, slo);
      // At most 1 / (1 ms + 5 ms / b) a device with batches of b ≤ slo − 5 ms.
      const double b = to_ms(slo) - 5;
      const double rate = 3e3 * devices / (1 + 5 / b);
      const auto without = run(w, deferred::scheduler{}, rate, false, 7);
      const auto with = run(w, deferred::scheduler{}, rate, true, 7);
      CHECK(without.refused == 0);
      CHECK(static_cast<double>(with.completed) > 0.97 * static_cast<double>(without.completed));
      CHECK(with.refused > 9 * with.dropped);
      CHECK(with.arrived == with.completed + with.late + with.dropped + with.refused);
      CHECK(with.arrived == without.arrived);
      // Over pools it is the same.
      const auto pooled = run(w, deferred::pooled_scheduler{}, rate, true, 7);
      CHECK(pooled.refused == with.refused);
      CHECK(pooled.completed == with.completed);
    }
  }
}

TEST_CASE("at half the load nobody is refused") {
  const sim::workload w = overload_of(4, 25ms);
  const auto r = run(w, deferred::make_adaptive_scheduler(), 0.5 * 4e3 / 1.25, true, 3);
  CHECK(r.refused == 0);
  CHECK(r.bad_rate < 0.001);
}

TEST_CASE("whatever is told, the room stays finite and what is said is a time to come") {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random{seed};
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    early_refusal r;
    r.add_model(only, 1ms * (1 + below(200)));
    duration now{};
    for (int i = 0; i < 2000; ++i) {
      now += 1us * below(5000);
      switch (below(4)) {
        case 0:
          r.on_drop(only, below(100), at(now));
          break;
        case 1: {
          const std::uint32_t size = 1 + below(32);
          r.on_batch(only, size, size + below(8), below(3), at(now));
          break;
        }
        default:
          if (!r.is_overloaded(only, at(now))) break;
          const auto after = r.judge(only,
                                     {.ahead = below(200),
                                      .target = 1 + below(32),
                                      .batch = 1us * below(100'000),
                                      .slack = 1us * below(300'000),
                                      .until_a_start = 1us * below(100'000)},
                                     at(now));
          if (after) CHECK(*after >= 0ns);
      }
      REQUIRE(r.room(only) >= 0);
      REQUIRE(r.room(only) < 1e6);
    }
  }
}

}  // namespace
}  // namespace cohort::engine::early_refusal_test
