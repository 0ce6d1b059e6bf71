// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <deque>

namespace cohort::engine {
namespace {
using namespace std::chrono_literals;

struct ignore {
  void operator()(request&, outcome) const noexcept {}
};

// Question: what do inbox, admission and an emulated device add to the bare core, per request?
void bm_loop(benchmark::State& state) {
  profile_backend backend;
  basic_loop loop{deferred_core{}, backend, inline_completion{ignore{}}};
  backend.bind(loop);
  time_point now{};
  const latency_curve l{linear_latency{5072us, 1053us}, 18};
  for (int i = 0; i < 8; ++i) backend.add_device(loop.add_device(now));
  const model_id m = loop.add_model({.scheduling = {.latency = l, .slo = 25ms}});
  backend.add_model(m, l);
  std::deque<request> pool(4096);
  std::size_t next = 0;
  time_point wake = now;
  for ([[maybe_unused]] auto _ : state) {
    const time_point at = now + 222us;
    while (wake <= at) wake = loop.turn(now = std::max(now, wake));
    now = at;
    request& r = pool[next++ % pool.size()];
    r.model = m;
    r.arrival = now;
    r.deadline = now + 25ms;
    if (r.hold == engine_hold::none) benchmark::DoNotOptimize(loop.submit(r, now));
    wake = loop.turn(now);
  }
  loop.drain();
  while (!loop.is_finished()) now = std::max(now, loop.turn(now));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(bm_loop);

}  // namespace
}  // namespace cohort::engine
