// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/early_refusal.hpp>

#include <doctest/doctest.h>

#include <cohort/sim/simulation.hpp>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>

#include <chrono>
#include <cmath>
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
  CHECK(r.room(only) < 5);
  CHECK(r.room(only) > 4);
  for (int i = 0; i < 14; ++i) r.on_drop(only, 5, at(3000ms));
  CHECK_FALSE(r.is_overloaded(only, at(3000ms)));  // All of 15.
  r.on_drop(only, 5, at(3000ms));
  CHECK(r.is_overloaded(only, at(3000ms)));
}

/// Behind how many others a request may wait: the first number with which it is refused.
std::uint32_t most_ahead(early_refusal r, arrival_outlook a) {
  for (a.ahead = 0; a.ahead < 1000; ++a.ahead) {
    if (r.judge(only, a, at(20ms))) return a.ahead;
  }
  return a.ahead;
}

TEST_CASE("as many may wait as did when one was dropped, and a little less") {
  early_refusal r = overloaded();
  const double room = r.room(only);
  CHECK(room < 30);
  CHECK(room > 25);
  CHECK(most_ahead(r, usual(0)) == std::ceil(room));
  // The more there are ahead, the longer it is until one like it is taken.
  const auto soon = r.judge(only, usual(30), at(20ms));
  const auto late = r.judge(only, usual(60), at(20ms));
  REQUIRE(soon);
  REQUIRE(late);
  CHECK(*soon > 0ms);
  CHECK(*soon < 10ms);  // Two or three at 10 in 20 ms.
  CHECK(*late > *soon + 50ms);
  // What is refused makes a little room, and what is dropped takes much more.
  const double after = r.room(only);
  CHECK(after > room);
  r.on_drop(only, 30, at(20ms));
  CHECK(r.room(only) < room);
}

TEST_CASE("a request with more time may wait behind more, and one with less behind fewer") {
  const early_refusal r = overloaded();
  arrival_outlook a = usual(0);
  const std::uint32_t usually = most_ahead(r, a);
  a.slack = 75ms;  // 25 of the usual 50 ms beside its batch.
  CHECK(std::abs(2.0 * most_ahead(r, a) - usually) <= 2);
  a.slack = 150ms;
  CHECK(std::abs(0.5 * most_ahead(r, a) - usually) <= 1);
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
  double room = r.room(only);
  r.on_batch(only, 5, 7, 0, at(20ms));  // No request was refused.
  CHECK(r.room(only) == room);
  REQUIRE(r.judge(only, usual(30), at(20ms)));
  room = r.room(only);
  r.on_batch(only, 5, 7, 3, at(21ms));  // Others wait: it was not for lack of them.
  CHECK(r.room(only) == room);
  REQUIRE(r.judge(only, usual(30), at(22ms)));
  room = r.room(only);
  r.on_batch(only, 5, 7, 0, at(23ms));  // One could have been in it: by much, but not all at once.
  CHECK(r.room(only) > room + 1);
  CHECK(r.room(only) <= 2 * room);
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
  // How much room a refusal makes.
  const auto gained = [](early_refusal& of, model_id m) {
    const double before = of.room(m);
    REQUIRE(of.judge(m, usual(40), at(20ms)));
    return of.room(m) - before;
  };
  early_refusal alone = overloaded();
  const double usually = gained(alone, only);
  // 10 of 41 are served, and 40 of 80 of both.
  CHECK(gained(r, only) > 2 * usually);
  // 30 of 40, which is more than of both.
  CHECK(gained(r, other) == doctest::Approx(usually));
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
      CHECK(with.completed + with.late + with.dropped + with.refused == with.arrived);
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
  for (unsigned seed = 1; seed <= 50; ++seed) {
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
          if (after) REQUIRE(*after >= 0ns);
      }
      REQUIRE(r.room(only) >= 0);
      REQUIRE(r.room(only) < 1e6);
    }
  }
}

}  // namespace
}  // namespace cohort::engine::early_refusal_test
