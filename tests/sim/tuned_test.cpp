// SPDX-License-Identifier: Apache-2.0
// The scheduler that tunes itself, where fixed settings fail.
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/sim/simulation.hpp>
#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace cohort::sim::tuned_test {
namespace {
using namespace std::chrono_literals;

workload serving(std::uint32_t devices) {
  workload w;
  w.devices = devices;
  w.warmup = 4s;
  w.measured = 8s;
  return w;
}
run_result tuned(const workload& w, double rate, std::uint64_t seed = 1,
                 const deferred::tuning_options& o = {}) {
  return simulation{w, deferred::tuned_scheduler{{}, o}, {.rate = rate, .seed = seed}}.run();
}
run_result fixed(const workload& w, double rate, const deferred::settings& s) {
  return simulation{
      w, deferred::make_adaptive_scheduler({}, s.policy(), s.learns()), {.rate = rate}}
      .run();
}

TEST_CASE("it leaves settings that starve models of tiny marginal latency") {
  // Four like DenseNet121 on six devices: with a reserve a tenth of all is dropped.
  workload w = serving(6);
  for (int m = 0; m < 4; ++m) {
    w.models.push_back(
        {.name = std::to_string(m), .latency = linear_latency{10546us, 54us}, .slo = 21ms});
  }
  const deferred::settings bad{};  // Reserved.
  CHECK(fixed(w, 13'500, bad).bad_rate > 0.05);
  const run_result r = tuned(w, 13'500, 1, {.initial = bad});
  CHECK(r.bad_rate < 0.01);
  REQUIRE_FALSE(r.settings.empty());
  CHECK(r.settings[0].now.window != deferred::window_kind::reserved);
  CHECK(r.settings[0].after.bad < r.settings[0].before.bad);
}

TEST_CASE("it raises the quantile of learned latencies where noise costs requests") {
  workload w = serving(8);
  w.models = {{.name = "ResNet50", .latency = linear_latency{5072us, 1053us}, .slo = 25ms}};
  w.reality.noise.sigma = 0.2;
  const run_result r = tuned(w, 2200);
  CHECK(r.bad_rate <= fixed(w, 2200, {}).bad_rate);
  CHECK(r.bad_rate < 0.015);
}

TEST_CASE("it changes nothing while all goes well, and is the same each time") {
  workload w = serving(8);
  w.models = {{.name = "ResNet50", .latency = linear_latency{5072us, 1053us}, .slo = 25ms}};
  const run_result a = tuned(w, 1000);
  CHECK(a.bad_rate == 0);
  CHECK(a.settings.size() <= 1);
  const run_result b = tuned(w, 1000);
  CHECK(a.latency_p99_ms == b.latency_p99_ms);
  CHECK(a.settings.size() == b.settings.size());
}

TEST_CASE("with too few requests it leaves the settings as they are") {
  workload w = serving(2);
  w.models = {{.name = "a", .latency = linear_latency{5ms, 1ms}, .slo = 25ms}};
  CHECK(tuned(w, 2).settings.empty());
}

TEST_CASE("every request ends once whatever is drawn") {
  for (std::uint64_t seed = 1; seed <= test::seeds(15); ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    workload w = serving(1 + random.below(6U));
    w.warmup = 200ms;
    w.measured = 3s;
    for (std::uint32_t m = 1 + random.below(5U); m > 0; --m) {
      const linear_latency l{1ms * random.below(10), 1us * (20 + random.below(2000))};
      w.models.push_back(
          {.name = std::to_string(m), .latency = l, .slo = l(1) * (1 + random.below(8))});
    }
    w.reality.noise = {.sigma = random.below(4) / 10.0, .bias = 0.2 + random.below(30) / 10.0};
    if (random.one_in(3)) {
      w.reality.faults = {
          {.at = 1s, .device = device_id{0}, .kind = fault_kind::fail, .lasts = 1s}};
    }
    if (random.one_in(2)) w.load = load_steps{{{1s, 0.1}, {2s, 2}}};
    const run_result r =
        tuned(w, 100.0 + random.below(4000), seed, {.period = 100ms, .longest_period = 400ms});
    CHECK(r.completed + r.late + r.dropped + r.refused == r.arrived);
  }
}

}  // namespace
}  // namespace cohort::sim::tuned_test
