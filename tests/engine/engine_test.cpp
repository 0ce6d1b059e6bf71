// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/engine.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

#include "engine_kinds.hpp"

namespace cohort::engine::engine_test {
namespace {
using namespace std::chrono_literals;

struct counted : request {
  std::optional<refusal> refused;
  std::atomic<int> ends{0};
  /// Whoever is kept from the processor for the SLO comes too late; for nothing else is one
  /// refused.
  [[nodiscard]] bool is_as_it_must() const {
    return refused ? *refused == refusal::deadline_infeasible && ends == 0 : ends == 1;
  }
};
struct count {
  std::atomic<std::uint64_t>* ended;
  void operator()(request& r, outcome) const {
    ++static_cast<counted&>(r).ends;
    ++*ended;
  }
};
using one = test_support::one_thread<deferred::adaptive_window, deferred::drop_head,
                                     deferred::adaptive_target, deferred::adaptive_priority>;
using two = test_support::many_threads<1, deferred::adaptive_window, deferred::drop_head,
                                       deferred::adaptive_target, deferred::adaptive_priority>;
using three = test_support::many_threads<2, deferred::frontrun, deferred::drop_head>;
#define COHORT_ENGINES one, two, three

/// Two devices, models of about 20 µs a batch.
template <class Kind>
struct fixture {
  fixture() {
    backend.bind(engine);
    for (int i = 0; i < 2; ++i) add_device();
    for (int i = 0; i < 2; ++i) models.push_back(add_model());
  }
  device_id add_device() {
    return engine.add_device([this](device_id d) { backend.add_device(d); });
  }
  model_id add_model() {
    const latency_curve l{linear_latency{10us, 2us}, 16};
    return engine.add_model({.scheduling = {.latency = l, .slo = 20ms, .queue_capacity = 1 << 16}},
                            [&](model_id m) { backend.add_model(m, l); });
  }
  /// @returns Whether it is taken.
  bool submit(counted& r, model_id m, duration slo = 20ms) {
    r.model = m;
    r.arrival = clock.now();
    r.deadline = r.arrival + slo;
    r.refused = engine.submit(r);
    return !r.refused;
  }
  steady_clock clock;
  std::atomic<std::uint64_t> ended{0};
  profile_backend backend;
  using context = inline_completion<count>;
  std::unique_ptr<typename Kind::template type<profile_backend, context>> made =
      Kind::make(backend, context{{&ended}});
  typename Kind::template type<profile_backend, context>& engine = *made;
  std::vector<model_id> models;
};

TEST_CASE_TEMPLATE("threads submit and cancel at will: every accepted request ends exactly once",
                   Kind, COHORT_ENGINES) {
  constexpr int threads = 3;
  constexpr std::size_t each = test::seeds(2000);
  fixture<Kind> f;
  std::vector<std::deque<counted>> pools(threads);
  std::atomic<std::uint64_t> accepted{0};
  std::latch start{threads};
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    pools[static_cast<std::size_t>(t)].resize(each);
    workers.emplace_back([&, t] {
      test::random_source random{static_cast<std::uint64_t>(t) + 1};
      start.arrive_and_wait();
      auto& pool = pools[static_cast<std::size_t>(t)];
      for (std::size_t i = 0; i < each; ++i) {
        accepted += f.submit(pool[i], f.models[random.below(2U)]);
        if (random.one_in(3)) f.engine.cancel(pool[random.below(i + 1)]);
      }
    });
  }
  for (std::thread& w : workers) w.join();
  f.engine.drain();
  f.engine.join();
  CHECK(f.ended == accepted);
  CHECK(accepted > 0);
  for (const auto& pool : pools) {
    for (const counted& r : pool) REQUIRE(r.is_as_it_must());
  }
  counted late;
  CHECK_FALSE(f.submit(late, f.models[0]));
}
TEST_CASE_TEMPLATE("destroying an engine with work outstanding ends every request first", Kind,
                   COHORT_ENGINES) {
  std::deque<counted> pool(500);
  {
    fixture<Kind> f;
    for (counted& r : pool) f.submit(r, f.models[0]);
  }
  CHECK(std::ranges::any_of(pool, [](const counted& r) { return r.ends == 1; }));
  for (const counted& r : pool) CHECK(r.is_as_it_must());
}
/// Runs nothing: batches end when the test says so.
struct idle_backend {
  void launch(const deferred::batch& b) {
    const std::lock_guard lock{mutex};
    at = b.at();
    has_launched = true;
  }
  batch_ticket last() {
    const std::lock_guard lock{mutex};
    return at;
  }
  std::mutex mutex;
  batch_ticket at{};
  std::atomic<bool> has_launched{false};
};

using eager_one = test_support::one_thread<deferred::eager, deferred::head>;
using eager_two = test_support::many_threads<1, deferred::eager, deferred::head>;
TEST_CASE_TEMPLATE(
    "an engine is drained for a limited time, says what is left, and may be asked again", Kind,
    eager_one, eager_two) {
  idle_backend backend;
  std::atomic<std::uint64_t> ended{0};
  const auto made =
      Kind::make(backend, inline_completion<count>{{&ended}}, {.health = {.is_on = false}});
  auto& engine = *made;
  engine.add_device([](device_id) {});
  const model_id m = engine.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{10us, 2us}, 1}, .slo = 1h}},
      [](model_id) {});
  std::deque<counted> all(2);
  const auto submit = [&](counted& r) {
    r.model = m;
    r.deadline = steady_clock{}.now() + 1h;
    return engine.submit(r);
  };
  for (counted& r : all) REQUIRE_FALSE(submit(r));
  CHECK(engine.drain_for(0s) == drain_report{.requests = 2});
  CHECK(engine.drain_for(1ms) == drain_report{.requests = 2});
  counted late;
  CHECK(submit(late) == refusal::draining);
  while (!backend.has_launched) std::this_thread::yield();
  engine.cancel(all[0]);  // What is at work ends with its batch, what waits ends now.
  engine.cancel(all[1]);
  while (ended == 0) std::this_thread::yield();
  CHECK(engine.drain_for(0s) == drain_report{.requests = 1});
  engine.complete(backend.last(), false);
  CHECK(engine.drain_for(1h) == drain_report{});
  CHECK(engine.drain_for(unbounded) == drain_report{});
  engine.join();
  for (const counted& r : all) CHECK(r.ends == 1);
}

TEST_CASE_TEMPLATE("models and devices come and go while requests run", Kind, COHORT_ENGINES) {
  fixture<Kind> f;
  std::deque<counted> pool(3000);
  std::uint64_t accepted = 0;
  std::size_t i = 0;
  for (int round = 0; round < 10; ++round) {
    const model_id extra = f.add_model();
    const device_id d = f.add_device();
    for (int k = 0; k < 200; ++k) accepted += f.submit(pool[i++], k % 2 == 0 ? extra : f.models[0]);
    std::promise<void> gone;
    f.engine.remove_model(extra, [&] { gone.set_value(); });
    gone.get_future().wait();
    f.engine.remove_device(d);
  }
  f.engine.drain();
  f.engine.join();
  CHECK(f.ended == accepted);
}
TEST_CASE("models and devices come and go while it drains, and after that: nobody waits for ever") {
  for (std::uint64_t round = 0; round < test::seeds(60); ++round) {
    CAPTURE(round);
    fixture<one> f;
    std::latch start{3};
    std::atomic<int> gone{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        for (int i = 0; i < 5; ++i) {
          const model_id m = f.add_model();
          f.engine.inspect([&](const auto& loop) { CHECK(loop.is_accepting(m)); });
          f.engine.remove_model(m, [&] { ++gone; });
          f.engine.remove_device(f.add_device());
        }
      });
    }
    counted last;
    const bool was_accepted = f.submit(last, f.models[0]);
    start.arrive_and_wait();
    f.engine.drain();
    if (round % 2 == 0) f.engine.join();
    for (std::thread& t : threads) t.join();
    f.engine.run_inside([] {});  // Behind all that was posted.
    CHECK(gone == 10);
    counted late;
    CHECK_FALSE(f.submit(late, f.models[0]));
    f.engine.join();
    CHECK(f.ended == (was_accepted ? 1 : 0));
    CHECK_THROWS_AS(f.engine.run_inside([] { throw 7; }), int);
  }
}

TEST_CASE_TEMPLATE("what the loop's thread throws comes back as it was, and the engine goes on",
                   Kind, COHORT_ENGINES) {
  fixture<Kind> f;
  CHECK_THROWS_WITH_AS(f.engine.run_inside([] { throw device_error{"launch"}; }), "launch",
                       device_error);
  CHECK_THROWS_AS(f.engine.add_device([](device_id) { throw resource_error{"no memory"}; }),
                  resource_error);
  CHECK_THROWS_AS(f.engine.run_inside([] { throw std::bad_alloc{}; }), std::bad_alloc);
  CHECK_THROWS_AS(f.engine.run_inside([] { throw 7; }), int);  // Whatever it is.
  bool ran = false;
  f.engine.run_inside([&] { ran = true; });
  CHECK(ran);
}
TEST_CASE("the loop can be looked at while it runs") {
  fixture<one> f;
  counted r;
  CHECK(f.submit(r, f.models[0], 500ms));
  while (r.ends == 0) std::this_thread::yield();
  std::uint64_t measured = 0;
  f.engine.inspect([&](const auto& loop) {
    measured = loop.core().scheduler().models().latency(f.models[0]).batches().count();
    CHECK(loop.is_accepting(f.models[0]));
  });
  CHECK(measured == 1);
  CHECK_THROWS_AS(f.engine.inspect([](const auto&) { throw 1; }), int);
}

TEST_CASE_TEMPLATE(
    "a model that cannot meet its SLO is refused to the caller, and the engine goes on", Kind,
    COHORT_ENGINES) {
  fixture<Kind> f;
  CHECK_THROWS_AS(
      f.engine.add_model(
          {.scheduling = {.latency = latency_curve{linear_latency{5ms, 0ms}, 4}, .slo = 1ms}},
          [](model_id) {}),
      config_error);
  counted r;
  CHECK(f.submit(r, f.models[1], 500ms));
  f.engine.drain();
  f.engine.join();
  CHECK(r.ends == 1);
}
}  // namespace
}  // namespace cohort::engine::engine_test
