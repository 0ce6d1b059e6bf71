// SPDX-License-Identifier: Apache-2.0
// Shows that serving a request allocates nothing once the structures have grown.
#include <doctest/doctest.h>
#include <cohort/engine/engine_core.hpp>

#include <cohort/deferred/adaptive.hpp>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>

#include "loop_fixture.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc{};
}
// Not inlined: GCC would miss the operator new beside it and warn of a mismatch.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cohort::engine {
namespace {
using namespace std::chrono_literals;

struct silent_sink {
  void launch(const deferred::batch& b) { last = b.device; }
  void ended(request&, outcome) { ++ends; }
  void model_removed(model_id) {}
  device_id last;
  std::uint64_t ends = 0;
};

TEST_CASE("scheduler and core allocate nothing for a request") {
  basic_engine_core<deferred::adaptive_scheduler> core;
  silent_sink sink;
  time_point now{};
  for (int i = 0; i < 4; ++i) core.add_device(now);
  const model_id m = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 25ms}});
  std::deque<request> pool(512);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < 110'000; ++i) {
    if (i == 10'000) before = allocations;
    now += 500us;
    request& r = pool[i % pool.size()];
    r.model = m;
    r.arrival = now;
    r.deadline = now + 25ms;
    if (r.state == request_state::idle) (void)core.submit(r, now, sink);
    core.advance(now, sink);
    for (std::uint32_t d = 0; d < 4; ++d) {
      const device_id id{d};
      if (core.outstanding(id) > 0 && core.running(id).exec_at + core.running(id).expected <= now) {
        core.on_complete(id, false, now, sink);
      }
    }
    core.advance(now, sink);
  }
  CHECK(allocations - before == 0);
  CHECK(sink.ends > 100'000);
  while (core.in_flight() > 0) {
    now += 1ms;
    for (std::uint32_t d = 0; d < 4; ++d) {
      if (core.outstanding(device_id{d}) > 0) core.on_complete(device_id{d}, false, now, sink);
    }
    core.advance(now, sink);
  }
}
TEST_CASE("the loop, its inbox and the emulated device allocate nothing for a request") {
  test_support::loop_fixture f;
  f.ends.reserve(200'000);
  std::deque<request> pool(64);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < 110'000; ++i) {
    if (i == 10'000) before = allocations;
    request& r = pool[i % pool.size()];
    if (!r.in_engine) (void)f.submit(r);
    if (i % 7 == 0) f.loop.cancel(r);
    f.run_until(f.now + 2ms);
  }
  CHECK(allocations - before == 0);
  CHECK(f.ends.size() > 100'000);
  f.run_until(f.now + 1s);
}
}  // namespace
}  // namespace cohort::engine
