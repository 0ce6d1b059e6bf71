// SPDX-License-Identifier: Apache-2.0
// What `adaptive` does where users stand: idle, starved, overloaded, on machines that are late.
#include <cohort/deferred/adaptive.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

namespace cohort::sim::adaptive_test {
namespace {
using namespace std::chrono_literals;
using eager_scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;

workload serving(std::uint32_t devices) {
  workload w;
  w.devices = devices;
  w.warmup = 1s;
  w.measured = 10s;
  return w;
}
model_spec resnet50(duration slo) {
  return {.name = "ResNet50", .latency = linear_latency{5072us, 1053us}, .slo = slo};
}
run_result adaptive(const workload& w, double rate, std::uint64_t seed = 1) {
  return simulation{w, deferred::make_adaptive_scheduler(), {.rate = rate, .seed = seed}}.run();
}
run_result eager(const workload& w, double rate, std::uint64_t seed = 1) {
  return simulation{w, eager_scheduler{}, {.rate = rate, .seed = seed}}.run();
}
double worst(const run_result& r) {
  return std::ranges::max_element(r.per_model, {}, &model_result::bad_rate)->bad_rate;
}

TEST_CASE("a lone request does not wait while devices idle, whatever its deadline is") {
  for (const duration slo : {20ms, 200ms, 1000ms}) {
    CAPTURE(to_ms(slo));
    workload w = serving(8);
    w.models = {resnet50(slo)};
    const run_result r = adaptive(w, 20);
    CHECK(r.latency_p50_ms <= 1.05 * eager(w, 20).latency_p50_ms);
    CHECK(r.bad_rate == 0);
  }
}

TEST_CASE("the last requests of a load that ends do not wait for their deadlines") {
  // One device that is busy nearly all the time, an SLO of 5 s, and nobody who comes behind.
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    workload w = serving(1);
    w.warmup = 0s;
    w.measured = 3s;
    w.models = {resnet50(5000ms)};
    w.models.front().max_batch = 16;
    w.load = load_steps{{{.at = 2s, .part = 0}}};
    const run_result r = adaptive(w, 450, seed);
    CHECK(r.bad_rate == 0);
    // What idles is known to be more than the valve within a few periods of the meter's.
    CHECK(r.queueing_max_ms <= 500);
  }
}

TEST_CASE("no lone request is lost to timers that are five milliseconds late") {
  for (const duration late : {500us, 2000us, 5000us}) {
    CAPTURE(to_ms(late));
    workload w = serving(8);
    w.models = {resnet50(20ms)};
    w.reality.timers.mean = late;
    const run_result r = adaptive(w, 20);
    CHECK(r.bad_rate == 0);
    CHECK(r.latency_p50_ms <= 1.05 * eager(w, 20).latency_p50_ms);
  }
}

TEST_CASE("no model starves that eager serves beside others that leave it its share") {
  // Eight models on two devices: constant gaps, so that whoever comes at a bad moment always does.
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    workload w = serving(2);
    w.arrivals = arrival_process::uniform;
    for (int m = 0; m < 8; ++m) {
      const duration fixed = 1ms * (2 + 3 * m);
      w.models.push_back({.name = std::to_string(m),
                          .latency = linear_latency{fixed, 1ms},
                          .slo = 3 * (fixed + 1ms)});
    }
    const run_result r = adaptive(w, 60, seed);
    CHECK(r.busy_fraction < 0.5);
    CHECK(worst(r) <= worst(eager(w, 60, seed)) + 0.01);
  }
}

TEST_CASE("overload of a mix costs no goodput, and starves no model") {
  workload w = serving(16);
  w.measured = 5s;
  w.shares = popularity::equal;
  for (int m = 0; m < 10; ++m) {  // Short and long SLOs, little and much to gain from batching.
    const duration fixed = 1ms * (2 + 2 * m);
    const duration each = 100us * (1 + (3 * m) % 7);
    w.models.push_back({.name = std::to_string(m),
                        .latency = linear_latency{fixed, each},
                        .slo = (3 + m % 3) * (fixed + each)});
  }
  double peak = 4000;
  double beyond = 30'000;
  REQUIRE(worst(adaptive(w, peak)) <= 0.01);
  REQUIRE(worst(adaptive(w, beyond)) > 0.01);
  while (beyond > 1.05 * peak) {
    const double rate = std::sqrt(peak * beyond);
    (worst(adaptive(w, rate)) <= 0.01 ? peak : beyond) = rate;
  }
  for (const double over : {1.2, 1.5, 2.0, 3.0}) {
    CAPTURE(over);
    const run_result r = adaptive(w, over * peak);
    CHECK(r.throughput_rps >= peak);
    if (over == 1.2) CHECK(1 - worst(r) >= 0.5);
    if (over == 2.0) CHECK(1 - worst(r) >= 0.2);
  }
}

TEST_CASE("noise costs no more requests than eager loses") {
  workload w = serving(8);
  w.models = {resnet50(25ms)};
  for (const double rate : {2200, 3000}) {
    CAPTURE(rate);
    w.reality.noise.sigma = 0.1;
    CHECK(adaptive(w, rate).bad_rate <= eager(w, rate).bad_rate + 0.01);
  }
}

}  // namespace
}  // namespace cohort::sim::adaptive_test
