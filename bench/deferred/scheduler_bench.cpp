// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <queue>
#include <utility>
#include <vector>

namespace cohort::deferred {
namespace {
using namespace std::chrono_literals;

/// Devices that take as long as expected, and nothing else.
struct devices {
  void dispatch(batch&& b) noexcept {
    for (request& r : b.requests) r.state = request_state::idle;
    ends.emplace(b.exec_at + b.expected, b.device);
    b.requests.clear();
  }
  void drop(request&) noexcept {}
  using end = std::pair<time_point, device_id>;
  std::priority_queue<end, std::vector<end>, std::greater<>> ends;
};

// Question: what does a request cost from arrival to completion, by models and devices, with every
// device at about nine tenths of its load?
template <class Scheduler>
void bm_request(benchmark::State& state) {
  const auto models = static_cast<std::uint32_t>(state.range(0));
  const auto count = static_cast<std::uint32_t>(state.range(1));
  Scheduler s;
  devices d;
  time_point now{};
  for (std::uint32_t i = 0; i < count; ++i) s.add_device(now);
  for (std::uint32_t i = 0; i < models; ++i) {
    s.add_model({.latency = latency_curve{linear_latency{5072us, 1053us}, 90},
                 .slo = 100ms,
                 .queue_capacity = 1 << 16});
  }
  // Batches of 32 take 38.8 ms.
  const duration gap = from_ms(38.8 / 32 / count / 0.9);
  std::deque<request> pool(1 << 17);
  std::uint64_t n = 0;
  for ([[maybe_unused]] auto _ : state) {
    now += gap;
    request& r = pool[n % pool.size()];
    r.model = model_id{static_cast<std::uint32_t>((n * 2654435761U) % models)};
    r.arrival = now;
    r.deadline = now + 100ms;
    ++n;
    while (!d.ends.empty() && d.ends.top().first <= now) {
      s.on_complete(d.ends.top().second, now);
      d.ends.pop();
      s.advance(now, d);
    }
    if (r.state == request_state::idle) s.on_arrival(r, now, d);
    s.advance(now, d);
  }
  state.SetItemsProcessed(state.iterations());
}
void sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"models", "devices"});
  for (const int models : {1, 8, 64}) {
    for (const int count : {8, 64, 1024}) b->Args({models, count});
  }
}
BENCHMARK(bm_request<scheduler>)->Apply(sizes);
BENCHMARK(bm_request<adaptive_scheduler>)->Args({64, 64});

/// Trials that are never done: what is left of tuning is its cost on the path of requests.
struct endless_trials {
  static void start(tuning_job&) noexcept {}
  static bool is_done() noexcept { return false; }
  static void cancel() noexcept {}
};
struct learning_scheduler : adaptive_scheduler {
  learning_scheduler() : adaptive_scheduler{make_adaptive_scheduler()} {}
};
BENCHMARK(bm_request<learning_scheduler>)->Args({64, 64});
BENCHMARK(bm_request<basic_tuned_scheduler<endless_trials>>)->Args({64, 64});

}  // namespace
}  // namespace cohort::deferred
