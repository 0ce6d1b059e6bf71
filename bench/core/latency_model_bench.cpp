// SPDX-License-Identifier: Apache-2.0
// Question: what does a scheduler save by looking latencies up in a curve instead of a table with
// interpolation, and what does it cost to find the largest batch within a budget?
#include <benchmark/benchmark.h>

#include <cohort/core/latency_model.hpp>
#include <cstdint>

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t max_batch = 64;

// Powers of two from 1 to 64, as profiles are usually measured.
cohort::table_latency profile() {
  return cohort::table_latency{
      {{1, 6ms}, {2, 7ms}, {4, 9ms}, {8, 13ms}, {16, 22ms}, {32, 39ms}, {64, 72ms}}};
}

template <class Latency>
void look_up_every_batch(benchmark::State& state, const Latency& latency) {
  std::uint32_t batch = 0;
  for ([[maybe_unused]] auto _ : state) {
    batch = batch % max_batch + 1;
    benchmark::DoNotOptimize(latency(batch));
  }
  state.SetItemsProcessed(state.iterations());
}

void bm_table_latency(benchmark::State& state) { look_up_every_batch(state, profile()); }
BENCHMARK(bm_table_latency);

void bm_latency_curve(benchmark::State& state) {
  look_up_every_batch(state, cohort::latency_curve{profile(), max_batch});
}
BENCHMARK(bm_latency_curve);

void bm_largest_within(benchmark::State& state) {
  const cohort::latency_curve curve{profile(), max_batch};
  cohort::duration budget{0};
  for ([[maybe_unused]] auto _ : state) {
    budget = (budget + 777us) % 80ms;
    benchmark::DoNotOptimize(curve.largest_within(budget));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bm_largest_within);

}  // namespace
