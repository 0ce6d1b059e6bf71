// SPDX-License-Identifier: Apache-2.0
// Shows that serving a request allocates nothing once the structures have grown.
#include <doctest/doctest.h>
#include <cohort/engine/engine_core.hpp>

#include <cohort/deferred/adaptive.hpp>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <new>
#include <vector>

#include "loop_fixture.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

// Not inlined, else GCC takes malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cohort::engine::allocation_test {
namespace {
using namespace std::chrono_literals;

struct silent_sink {
  silent_sink() { running.reserve(64); }
  void launch(const deferred::batch& b) noexcept { running.push_back(&b); }
  void ended(request&, outcome) noexcept { ++ends; }
  void model_removed(model_id) noexcept {}
  /// Ends the batches that should have ended by `now`.
  template <class Core>
  void finish(Core& core, time_point now) {
    for (std::size_t i = 0; i < running.size();) {
      const deferred::batch& b = *running[i];
      if (b.exec_at + b.expected > now) {
        ++i;
        continue;
      }
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      core.on_complete(b.at(), false, now, *this);
    }
  }
  std::vector<const deferred::batch*> running;
  std::uint64_t ends = 0;
};

void check_scheduler_and_core(std::uint32_t capacity) {
  basic_engine_core<deferred::adaptive_scheduler> core;
  silent_sink sink;
  time_point now{};
  for (int i = 0; i < 4; ++i) core.add_device(now, capacity);
  const model_id m = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 25ms}});
  std::deque<request> pool(512);
  std::uint64_t before = 0;
  std::uint64_t refused = 0;
  for (std::size_t i = 0; i < 110'000; ++i) {
    if (i == 10'000) before = allocations;
    now += 500us;
    request& r = pool[i % pool.size()];
    r.model = m;
    r.arrival = now;
    r.deadline = now + 25ms;
    if (r.state == request_state::idle && core.submit(r, now, sink)) ++refused;
    core.advance(now, sink);
    sink.finish(core, now);
    core.advance(now, sink);
  }
  CHECK(allocations - before == 0);
  CHECK(sink.ends + refused > 100'000);
  while (core.in_flight() > 0) {
    now += 1ms;
    sink.finish(core, now);
    core.advance(now, sink);
  }
}
TEST_CASE("scheduler and core allocate nothing for a request") { check_scheduler_and_core(1); }
TEST_CASE("scheduler and core allocate nothing for a request on devices of capacity 3") {
  check_scheduler_and_core(3);
}
TEST_CASE("the loop, its inbox and the emulated device allocate nothing for a request") {
  test_support::loop_fixture f;
  f.ends.reserve(200'000);
  std::deque<request> pool(64);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < 110'000; ++i) {
    if (i == 10'000) before = allocations;
    request& r = pool[i % pool.size()];
    if (r.hold == engine_hold::none) (void)f.submit(r);
    if (i % 7 == 0) f.loop.cancel(r);
    f.run_until(f.now + 2ms);
  }
  CHECK(allocations - before == 0);
  CHECK(f.ends.size() > 100'000);
  f.run_until(f.now + 1s);
}
}  // namespace
}  // namespace cohort::engine::allocation_test
