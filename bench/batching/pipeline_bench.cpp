// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace {
using namespace cohort;
using namespace cohort::batching;

struct instant_device {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> running;
  void launch(const stage_launch& l) { running.emplace_back(l.lane, l.stage); }
  void end(const staged_request&, outcome, time_point) {}
  void move(std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {}
};

stage_profile profile(std::uint32_t stages, std::uint32_t batch_max) {
  std::vector<std::vector<stage_point>> all(stages);
  for (std::uint32_t s = 0; s < stages; ++s) {
    for (std::uint32_t b = 1; b <= batch_max; b *= 2) {
      const auto grown = static_cast<int>(s % 2 == 0 ? 1 : b);
      all[s].push_back({.batch = b, .time = std::chrono::milliseconds{grown}});
    }
  }
  return {all, batch_max};
}

// Question: what does it cost to hand a row over to the next stage, decisions included? Under 2 µs.
// The device is instant, so that only scheduling is measured; `size` requests arrive together.
void bm_hand_over(benchmark::State& state) {
  const auto size = static_cast<std::uint32_t>(state.range(0));
  const stage_profile p = profile(4, 64);
  pipeline<diversity> x{p, {.max_waiting = 1U << 16U}, diversity{p}};
  instant_device d;
  std::vector<staged_request> group(size);
  time_point now{};
  std::int64_t items = 0;
  for ([[maybe_unused]] auto _ : state) {
    now += duration{1000};
    for (staged_request& r : group) r = {.tag = r.tag + size, .arrival = now};
    x.on_arrival(group, now);
    x.advance(now, d);
    while (!d.running.empty()) {
      const auto [lane, stage] = d.running.back();
      d.running.pop_back();
      ++items;
      x.on_complete(lane, stage, now, d);
      x.advance(now, d);
    }
  }
  state.counters["per_item"] = benchmark::Counter(
      static_cast<double>(items), benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(bm_hand_over)->ArgName("size")->Arg(1)->Arg(8)->Arg(64);

// Question: what does it cost to make the plans of a model?
void bm_planner(benchmark::State& state) {
  const stage_profile p = profile(static_cast<std::uint32_t>(state.range(0)), 64);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(planner{p});
}
BENCHMARK(bm_planner)->ArgName("stages")->Arg(4)->Arg(20)->Unit(benchmark::kMillisecond);

}  // namespace
