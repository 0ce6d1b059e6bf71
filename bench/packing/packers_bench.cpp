// SPDX-License-Identifier: Apache-2.0
// Question: do the heuristics place a demand of five models in less than 100 us, and a thousand
// models on a thousand devices in less than a second? And what does the test of one gpu-let cost?
// Profiles are made up, of the shape that was measured: see packing_bars for measured ones.
#include <benchmark/benchmark.h>

#include <cohort/packing/packers/elastic_partition.hpp>
#include <cohort/packing/packers/elastic_two_sided.hpp>
#include <cohort/packing/packers/portfolio.hpp>
#include <cohort/packing/packers/self_tuning.hpp>
#include <cohort/packing/packers/squishy.hpp>
#include <cohort/packing/subclusters/subcluster_search.hpp>

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace {
using namespace cohort::packing;

constexpr interference_model interference{
    .l2_self = 0.05, .l2_other = 0.1, .memory_self = 0.05, .memory_other = 0.15, .constant = 0.95};

double uniform(std::mt19937_64& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11U) * 0x1p-53;
}

/// Latency is flat above a knee of 20 to 80 % of the device, and below it longer.
std::vector<model_profile> profiles(std::size_t count) {
  std::mt19937_64 random{1};
  std::vector<model_profile> all;
  for (std::size_t i = 0; i < count; ++i) {
    model_profile m{.name = fmt::format("m{}", i)};
    const double fixed = uniform(random, 1, 6);
    const double each = uniform(random, 0.1, 1);
    const double knee = uniform(random, 20, 80);
    const double use = uniform(random, 0.1, 0.5);
    for (const std::uint32_t b : {1U, 2U, 4U, 8U, 16U, 32U}) {
      for (const std::uint32_t p : {20U, 40U, 50U, 60U, 80U, 100U}) {
        m.latency.push_back({b, p, (fixed + each * b) * std::pow(std::max(1.0, knee / p), 0.85)});
      }
      m.usage.push_back({b, use * b / (b + 4), use * b / (b + 2)});
    }
    m.slo_ms = 2 * (fixed + each * 16);
    all.push_back(std::move(m));
  }
  return all;
}
latency_grid padded_grid(std::size_t models) {
  return latency_grid{profiles(models), {.pad_for = interference}};
}
latency_grid plain_grid(std::size_t models) { return latency_grid{profiles(models), {}}; }

/// Demands of `load` devices in all, drawn beforehand.
std::vector<packing_problem> demands(const latency_grid& grid, std::uint32_t gpus, double load,
                                     std::size_t count) {
  std::mt19937_64 random{2};
  std::vector<packing_problem> all(count, packing_problem{.gpus = gpus});
  for (packing_problem& p : all) {
    for (std::size_t m = 0; m < grid.models(); ++m) {
      const double part = uniform(random, 0, 2) * load / static_cast<double>(grid.models());
      p.rates_rps.push_back(part * grid.capacity_rps(m, grid.sizes() - 1));
    }
  }
  return all;
}

template <class Packer>
void place_all(benchmark::State& state, const latency_grid& grid, std::uint32_t gpus, double load,
               const Packer& packer) {
  const std::vector<packing_problem> asked = demands(grid, gpus, load, gpus > 100 ? 1 : 64);
  std::size_t i = 0;
  std::size_t scheduled = 0;
  for ([[maybe_unused]] auto _ : state) {
    const packing_result r = packer(grid, asked[i++ % asked.size()]);
    scheduled += r.schedulable();
    benchmark::DoNotOptimize(scheduled);
  }
  state.counters["schedulable"] =
      static_cast<double>(scheduled) / static_cast<double>(state.iterations());
}

void bm_squishy(benchmark::State& state) { place_all(state, plain_grid(5), 4, 2, squishy); }
void bm_elastic(benchmark::State& state) { place_all(state, plain_grid(5), 4, 2, elastic{}); }
void bm_elastic_int(benchmark::State& state) {
  place_all(state, padded_grid(5), 4, 2, elastic_int{});
}
void bm_elastic_two_sided(benchmark::State& state) {
  place_all(state, plain_grid(5), 4, 2, elastic_two_sided{interference});
}
void bm_self_tuning(benchmark::State& state) {
  place_all(state, plain_grid(5), 4, 2, self_tuning{});
}
void bm_portfolio(benchmark::State& state) { place_all(state, plain_grid(5), 4, 2, portfolio{}); }
BENCHMARK(bm_squishy);
BENCHMARK(bm_elastic);
BENCHMARK(bm_elastic_int);
BENCHMARK(bm_elastic_two_sided);
BENCHMARK(bm_self_tuning);
BENCHMARK(bm_portfolio);

void bm_squishy_1000(benchmark::State& state) {
  place_all(state, plain_grid(1000), 1000, 600, squishy);
}
void bm_elastic_1000(benchmark::State& state) {
  place_all(state, plain_grid(1000), 1000, 600, elastic{});
}
void bm_elastic_int_1000(benchmark::State& state) {
  place_all(state, padded_grid(1000), 1000, 600, elastic_int{});
}
BENCHMARK(bm_squishy_1000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_elastic_1000)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_elastic_int_1000)->Unit(benchmark::kMillisecond);

/// One gpu-let with that many models.
void bm_fit(benchmark::State& state) {
  const latency_grid grid = plain_grid(8);
  std::vector<gpulet_load> loads;
  const auto n = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t m = 0; m < n; ++m) {
    loads.push_back({.model = m, .rate_rps = 0.5 / n * grid.capacity_rps(m, grid.sizes() - 1)});
  }
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(fit(grid, grid.sizes() - 1, slo_rule::own, loads));
  }
}
BENCHMARK(bm_fit)->ArgName("models")->RangeMultiplier(2)->Range(1, 8);

/// Steps of annealing: moves and swaps tried.
void bm_subcluster_steps(benchmark::State& state) {
  std::mt19937_64 random{1};
  subcluster_problem p{.count = 20};
  for (int i = 0; i < 800; ++i) {
    p.models.push_back({.rate_rps = -100 * std::log(1 - uniform(random, 0, 1)),
                        .static_mb = uniform(random, 10, 600),
                        .dynamic_mb = uniform(random, 5, 100)});
  }
  p.rate_cap_rps = 1.05 * p.average_rate();
  p.memory_mb = 1.05 * p.average_memory() + 100;
  subcluster_search search{p};
  constexpr std::uint64_t steps = 2048;
  for ([[maybe_unused]] auto _ : state) search.run(steps, 0.5, 0.5);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(steps));
}
BENCHMARK(bm_subcluster_steps);

}  // namespace
