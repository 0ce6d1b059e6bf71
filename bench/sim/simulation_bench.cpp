// SPDX-License-Identifier: Apache-2.0
// Question: does one core simulate at least 1.5 million requests a second of 64 devices that serve
// the 37 models of the A100 zoo at 16000 r/s?
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <formats/zoo/zoo.hpp>

namespace {
using namespace cohort;

sim::workload a100() {
  sim::workload w;
  w.devices = 64;
  for (const formats::zoo_row& r : formats::zoo("a100")) {
    w.models.push_back({.name = std::string{r.name},
                        .latency = linear_latency{from_ms(r.beta_ms), from_ms(r.alpha_ms)},
                        .slo = from_ms(r.slo_ms)});
  }
  w.shares = sim::popularity::equal;
  w.warmup = std::chrono::seconds{1};
  w.measured = std::chrono::seconds{5};
  return w;
}

template <class Scheduler>
void run(benchmark::State& state, const Scheduler& scheduler) {
  const sim::workload w = a100();
  std::int64_t requests = 0;
  std::uint64_t seed = 1;
  for ([[maybe_unused]] auto _ : state) {
    sim::simulation<Scheduler> s{w, scheduler, {.rate = 16000, .seed = seed++}};
    requests += static_cast<std::int64_t>(s.run().simulated_requests);
  }
  state.SetItemsProcessed(requests);
}

void bm_deferred(benchmark::State& state) { run(state, deferred::scheduler{}); }
void bm_adaptive(benchmark::State& state) { run(state, deferred::make_adaptive_scheduler()); }
void bm_eager(benchmark::State& state) {
  run(state, deferred::basic_scheduler<deferred::eager, deferred::head>{});
}
BENCHMARK(bm_deferred)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_adaptive)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_eager)->Unit(benchmark::kMillisecond);

}  // namespace
