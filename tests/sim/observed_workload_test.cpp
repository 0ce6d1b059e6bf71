// SPDX-License-Identifier: Apache-2.0
// A server asks the simulator about itself: all in virtual time, so that what is real is known.
#include <cohort/sim/observed_workload.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/goodput.hpp>
#include <cohort/sim/simulation.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::sim::observed_workload_test {
namespace {
using namespace std::chrono_literals;

/// Three models on four devices, ℓ(b) = 6 + 2 b, 4 + 4 b and 1 + 7 b ms, SLO 100 ms.
workload served() {
  workload w;
  w.devices = 4;
  w.models = {{.name = "a", .latency = linear_latency{6ms, 2ms}, .slo = 100ms, .share = 2},
              {.name = "b", .latency = linear_latency{4ms, 4ms}, .slo = 100ms, .share = 1},
              {.name = "c", .latency = linear_latency{1ms, 7ms}, .slo = 100ms, .share = 1}};
  w.warmup = 5s;
  w.measured = 60s;
  w.network.response = 1ms;
  return w;
}

struct asked {
  run_result measured;
  workload exported;
};

/// Serves a workload, and asks at the end, as a server would: arrivals are metered one by one.
asked serve(const workload& w, double rate, std::uint64_t seed) {
  const auto make = [](const deferred::network_delays& d) {
    return deferred::make_adaptive_scheduler(d);
  };
  using scheduler = decltype(make(w.network));
  simulation<scheduler> run{w, make(w.told_delays()), {.rate = rate, .seed = seed}};
  std::vector<arrival_meter> meters(w.models.size());
  arrival_stream again{w, rate, seed};
  const time_point end = time_point{} + w.warmup + w.measured;
  while (again.next() < end) {
    const time_point at = again.next();
    meters[again.take()].add(at);
  }
  asked out{run.run(), {}};
  std::vector<served_model_facts> facts;
  std::vector<model_id> ids;
  for (std::size_t i = 0; i < w.models.size(); ++i) {
    const model_spec& m = w.models[i];
    ids.emplace_back(static_cast<std::uint32_t>(i));
    facts.push_back(
        {.name = m.name,
         .profile = latency_curve{[&](std::uint32_t b) noexcept { return m.latency_of(b); },
                                  effective_max_batch(m)},
         .slo = m.slo,
         .load = meters[i].measure(end)});
  }
  out.exported =
      observed_workload(facts, deferred::copy_learned(run.core().scheduler(), ids), 1ms, {});
  return out;
}

run_result simulate(const workload& w, std::uint64_t seed) {
  return sim::simulate(
      w, [](const deferred::network_delays& d) { return deferred::make_adaptive_scheduler(d); },
      {.rate = w.rate, .seed = seed}, [](time_point) {});
}

TEST_CASE("what was learned of noise, profiles and load is what there is") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    workload w = served();
    w.reality.noise = {.sigma = 0.1, .bias = 1.2, .straggler_share = 0.003, .straggler_factor = 5};
    w.arrivals = arrival_process::gamma;
    w.shape = 0.5;
    const workload x = serve(w, 400, seed).exported;
    CHECK(x.devices == 4);
    CHECK(x.rate == doctest::Approx(400).epsilon(0.06));
    CHECK(x.network.response == 1ms);
    double share = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      const model_spec& m = x.models[i];
      CHECK(m.share == doctest::Approx(i == 0 ? 200 : 100).epsilon(0.1));
      REQUIRE(m.arrivals.has_value());
      CHECK(m.arrivals->process == arrival_process::gamma);
      CHECK(m.arrivals->shape == doctest::Approx(0.5).epsilon(0.25));
      // What was seen is corrected to within a few per cent, size by size.
      for (const std::uint32_t b : {1U, 2U, 4U}) {
        const double real = 1.2 * to_ms(w.models[i].latency_of(b));
        CHECK(to_ms(m.latency_of(b)) == doctest::Approx(real).epsilon(0.06));
      }
      CHECK(x.reality.models[i].bias == 1);
      CHECK(x.reality.models[i].sigma == doctest::Approx(0.1).epsilon(0.2));
      share += x.reality.models[i].straggler_share / 3;
    }
    // A thousand batches a model: some nine stragglers in all.
    CHECK(share > 0.0005);
    CHECK(share < 0.01);
  }
}

TEST_CASE("a run of the export has the latencies and losses of the run that it is of") {
  // Below, near and above the peak. Medians of five seeds, within 8 % and 1.5 points.
  for (const double rate : {250.0, 450.0, 620.0}) {
    CAPTURE(rate);
    std::vector<double> p50;
    std::vector<double> p99;
    std::vector<double> bad;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      workload w = served();
      w.reality.noise = {
          .sigma = 0.1, .bias = 1.2, .straggler_share = 0.003, .straggler_factor = 5};
      const asked a = serve(w, rate, seed);
      const run_result r = simulate(a.exported, seed + 100);
      p50.push_back(r.served_p50_ms / a.measured.served_p50_ms - 1);
      p99.push_back(r.served_p99_ms / a.measured.served_p99_ms - 1);
      bad.push_back(r.bad_rate - a.measured.bad_rate);
    }
    CHECK(std::abs(percentile(p50, 0.5)) < 0.08);
    CHECK(std::abs(percentile(p99, 0.5)) < 0.08);
    CHECK(std::abs(percentile(bad, 0.5)) < 0.015);
  }
}

TEST_CASE("late timers are part of the export") {
  workload w = served();
  w.reality.timers = {.mean = 500us};
  const workload x = serve(w, 400, 1).exported;
  CHECK(to_ms(x.reality.timers.mean) > 0.1);
  CHECK(to_ms(x.reality.timers.mean) < 1);
}

deferred::learned_state nothing_learned(std::size_t models) {
  deferred::learned_state k;
  k.models.resize(models);
  k.devices = {{.id = device_id{0}}};
  return k;
}

served_model_facts facts_of(const char* name, double rate) {
  return {.name = name,
          .profile = latency_curve{linear_latency{5ms, 1ms}, 16},
          .slo = 50ms,
          .queue_capacity = 64,
          .load = {.rate = rate, .over = 10s}};
}

TEST_CASE("without arrivals models have equal shares of a rate that is not said") {
  const std::array facts{facts_of("a", 0), facts_of("b", 0)};
  const workload x = observed_workload(facts, nothing_learned(2), 0ms, {});
  CHECK(x.rate == 0);
  CHECK(x.models[0].share == 1);
  CHECK(x.models[1].share == 1);
  CHECK(x.reality.is_ideal());
  CHECK(x.models[0].latency_of(16) == 21ms);
  CHECK(x.models[0].max_batch == 16);
  CHECK(x.models[0].queue_capacity == 64);
}

TEST_CASE("a model that was just added has its profile and no part of the rate") {
  const std::array facts{facts_of("old", 10), facts_of("new", 0)};
  const workload x = observed_workload(facts, nothing_learned(2), 0ms, {});
  CHECK(x.rate == 10);
  CHECK(x.models[1].share == 0);
  CHECK(x.models[1].latency_of(1) == 6ms);
}

TEST_CASE("a policy that believes its profile is told it, and batches take what was measured") {
  deferred::learned_state k = nothing_learned(1);
  for (int i = 0; i < 100; ++i) k.models[0].learned.add(1, 1.5);
  const std::array facts{facts_of("a", 10)};
  const workload believes = observed_workload(facts, k, 0ms, {});
  CHECK(believes.models[0].latency_of(1) == 6ms);
  CHECK(believes.reality.models[0].bias == doctest::Approx(1.5).epsilon(0.01));
  k.learns = true;
  const workload learns = observed_workload(facts, k, 0ms, {});
  CHECK(to_ms(learns.models[0].latency_of(1)) == doctest::Approx(9).epsilon(0.01));
  CHECK(learns.reality.models[0].bias == 1);
  // An SLO that the corrected profile could not meet stays possible to ask about.
  std::array tight{facts_of("a", 10)};
  tight[0].slo = 8ms;
  const workload impossible = observed_workload(tight, k, 0ms, {});
  CHECK(impossible.models[0].latency_of(1) == 6ms);
  CHECK(impossible.reality.models[0].bias == doctest::Approx(1.5).epsilon(0.01));
}

TEST_CASE("devices are counted by their capacity, and slow ones are slow") {
  deferred::learned_state k = nothing_learned(1);
  k.devices = {{.id = device_id{0}, .factor = 1, .capacity = 2},
               {.id = device_id{3}, .factor = 2, .capacity = 2}};
  const std::array facts{facts_of("a", 10)};
  const workload x = observed_workload(facts, k, 0ms, {});
  CHECK(x.devices == 4);
  CHECK(x.models[0].latency_of(1) == 12ms);
  REQUIRE(x.reality.faults.size() == 2);
  CHECK(x.reality.faults[0].device == device_id{2});
  CHECK(x.reality.faults[0].kind == fault_kind::slow);
  CHECK(x.reality.faults[0].factor == 2);
}

TEST_CASE("a workload of nothing is none") {
  CHECK_THROWS_AS((void)observed_workload({}, nothing_learned(0), 0ms, {}), config_error);
  const std::array facts{facts_of("a", 1)};
  deferred::learned_state k = nothing_learned(1);
  k.devices.clear();
  CHECK_THROWS_AS((void)observed_workload(facts, k, 0ms, {}), config_error);
}

}  // namespace
}  // namespace cohort::sim::observed_workload_test
