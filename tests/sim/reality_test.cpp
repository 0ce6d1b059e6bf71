// SPDX-License-Identifier: Apache-2.0
// Runs on machines that differ from their profiles.
#include <cohort/sim/simulation.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace cohort::sim::reality_test {
namespace {
using namespace std::chrono_literals;
using eager_scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;

/// One model, ℓ(b) = 2 ms + b ms, SLO 10 ms; arrivals at these milliseconds.
workload one_model(std::uint32_t devices, std::initializer_list<int> ms) {
  workload w;
  w.devices = devices;
  w.models = {{.name = "a", .latency = linear_latency{2ms, 1ms}, .slo = 10ms}};
  w.arrivals = arrival_process::trace;
  for (const int at : ms) w.trace.push_back({time_point{1ms * at}, 0});
  w.warmup = 0s;
  w.measured = 1s;
  return w;
}

template <class Scheduler>
run_result run(const workload& w, Scheduler scheduler, double rate = 0, std::uint64_t seed = 1) {
  return simulation<Scheduler>{
      w, std::move(scheduler), {.rate = rate, .seed = seed, .record_dispatches = true}}
      .run();
}

TEST_CASE("without a reality nothing is drawn") {
  CHECK_FALSE(run(one_model(1, {0}), eager_scheduler{}).drawn.has_value());
}

TEST_CASE("a batch takes its bias longer") {
  workload w = one_model(1, {0});
  w.reality.noise.bias = 1.5;
  const run_result r = run(w, eager_scheduler{});
  CHECK(r.latency_p50_ms == 4.5);
  REQUIRE(r.drawn.has_value());
  CHECK(r.drawn->models[0].mean_factor == 1.5);
  CHECK(r.drawn->devices[0].batches == 1);
}

TEST_CASE("a device that hangs for ever keeps its batch, and the run ends all the same") {
  workload w = one_model(1, {0, 1, 50});
  w.reality.faults = {{.at = 1ms, .device = device_id{0}, .kind = fault_kind::hang}};
  const run_result r = run(w, eager_scheduler{});
  CHECK(r.completed == 0);
  CHECK(r.dropped == 3);  // One hangs, two find no device before their deadlines.
  CHECK(r.drawn->devices[0].hung == 1);
  CHECK(r.dispatches[0].finish == never);
}

TEST_CASE("a failing device ends batches at once, without results") {
  // The first request fails thrice at 1 ms; then its device is out, and probed at 101 ms.
  workload w = one_model(1, {0, 2, 50, 102});
  w.reality.faults = {{.at = 1ms, .device = device_id{0}, .kind = fault_kind::fail, .lasts = 10ms}};
  const run_result r = run(w, eager_scheduler{});
  CHECK(r.completed == 1);  // At 102.
  CHECK(r.dropped == 3);
  CHECK(r.drawn->devices[0].failed == 3);
  CHECK(r.dispatches[0].finish == time_point{1ms});
}

TEST_CASE("a slow device is slow for its time alone") {
  workload w = one_model(1, {0, 50});
  w.reality.faults = {
      {.at = 0ms, .device = device_id{0}, .kind = fault_kind::slow, .lasts = 10ms, .factor = 2}};
  const run_result r = run(w, eager_scheduler{});
  CHECK(r.dispatches[0].finish == time_point{6ms});
  CHECK(r.dispatches[1].finish == time_point{53ms});
}

TEST_CASE("timers fire late, and other events do what is due before") {
  // Frontrun of the first: deadline 10 − ℓ(2) = 6 ms. With the timer 1.5 ms or more late it could
  // start at 7 ms at the latest; the arrival at 6.5 ms wakes the driver before that.
  workload w = one_model(1, {0});
  w.reality.timers = {.mean = 0ms, .tail = 1500us, .tail_share = 1};
  CHECK(run(w, deferred::scheduler{}).dropped == 1);
  w.trace.push_back({time_point{6500us}, 0});
  const run_result r = run(w, deferred::scheduler{});
  CHECK(r.dispatches[0].at == time_point{6500us});
  CHECK(r.dispatches[0].size == 1);
  CHECK(r.drawn->wakes >= 1);
}

TEST_CASE("load steps change the rate at their instants") {
  workload w = one_model(64, {});
  w.arrivals = arrival_process::poisson;
  w.measured = 40s;
  w.load = load_steps{{{10s, 0.5}, {20s, 0}, {30s, 2}}};
  const run_result r = run(w, eager_scheduler{}, 1000);
  // 10 s at 1000, 500, 0 and 2000 a second.
  CHECK(static_cast<double>(r.arrived) == doctest::Approx(35'000).epsilon(0.02));
  CHECK(r.offered_rps == static_cast<double>(r.arrived) / 40);
  CHECK(r.completed == r.arrived);
}

TEST_CASE("a load that ends for ever ends the run") {
  workload w = one_model(1, {});
  w.arrivals = arrival_process::poisson;
  w.load = load_steps{{{100ms, 0}}};
  CHECK(run(w, eager_scheduler{}, 100).arrived < 40);
  w.load = load_steps{{{0ms, 0}}};
  CHECK(run(w, eager_scheduler{}, 100).arrived == 0);
}

TEST_CASE("every request ends once whatever befalls machines and timers") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    workload w;
    w.devices = 1 + random.below(4U);
    for (std::uint32_t m = 1 + random.below(4U); m > 0; --m) {
      const linear_latency l{1ms * random.below(6), 1us * (50 + random.below(2000))};
      w.models.push_back({.name = std::string(1, static_cast<char>('a' + m)),
                          .latency = l,
                          .slo = l(1) * (1 + random.below(8))});
    }
    w.warmup = 100ms;
    w.measured = 700ms;
    w.reality.noise = {.sigma = random.below(5) / 10.0,
                       .bias = 0.5 + random.below(15) / 10.0,
                       .bias_spread = random.below(9) / 10.0,
                       .straggler_share = random.below(3) / 10.0,
                       .straggler_factor = 1.0 + random.below(20),
                       .correlation = 1ms * random.below(3)};
    w.reality.timers = {.mean = 1us * random.below(2000), .tail = 5ms, .tail_share = 0.05};
    for (std::uint32_t i = random.below(4U); i > 0; --i) {
      w.reality.faults.push_back(
          {.at = 1ms * random.below(800),
           .device = device_id{random.below(w.devices)},
           .kind = static_cast<fault_kind>(random.below(3)),
           .lasts = random.one_in(3) ? unbounded : 1ms * (1 + random.below(300)),
           .factor = 1.0 + random.below(10)});
    }
    w.reality.validate();
    const auto check = [&](const run_result& r) {
      CHECK(r.completed + r.late + r.dropped + r.refused == r.arrived);
      CHECK(r.busy_fraction <= 1.0 + 1e-9);
      for (const dispatch_record& d : r.dispatches) {
        CHECK_UNARY(d.exec_at >= d.at || d.exec_at == never);
        CHECK_UNARY(d.finish >= d.exec_at);
      }
    };
    const double rate = 50.0 + random.below(3000);
    check(run(w, deferred::scheduler{}, rate, seed));
    check(run(w, eager_scheduler{}, rate, seed));
    check(run(w, deferred::make_adaptive_scheduler(), rate, seed));
  }
}

}  // namespace
}  // namespace cohort::sim::reality_test
