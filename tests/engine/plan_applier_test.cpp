// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_applier.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/partition_host.hpp>
#include <cohort/engine/plan_router.hpp>
#include <cohort/engine/profile_backend.hpp>
#include <cohort/packing/moves/periodic_planner.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>
#include <engine/planned_server.hpp>
#include <packing/random_demand.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

namespace cohort::engine::plan_applier_test {
namespace {
using namespace std::chrono_literals;
using packing::placed_model;
using packing::plan_transition;
constexpr time_point t0{};

using test_support::asked;

struct server : test_support::planned_server {
  explicit server(const packing::latency_grid& g, std::vector<fault> faults = {})
      : planned_server{g,
                       reality{.noise = {}, .timers = {}, .faults = std::move(faults)},
                       {.floor = 50ms, .hands_back = true}} {}
  /// What is left of a plan, around what is set aside.
  void begin(const packing::plan& p, packing::transition_limits limits) {
    limits.set_aside = applier.set_aside();
    applier.begin(plan_transition(grid, applier.live(), p, limits));
  }
  /// Whether the applier has nothing to do within so long.
  bool ends_within(duration d) {
    const time_point last = engine.now() + d;
    while (!applier.advance(engine.now())) {
      if (engine.now() >= last) return false;
      engine.run_until(engine.now() + 1ms);
    }
    return true;
  }
  void apply(packing::transition r) {
    applier.begin(std::move(r));
    while (!applier.advance(engine.now())) engine.run_until(engine.now() + 1ms);
  }
  plan_applier<host_type, watched_router> applier{host, router, 1s};
};

packing::gpulet one(std::uint32_t gpu, unsigned pct, std::vector<placed_model> models) {
  return {.gpu = device_id{gpu}, .size = device_share{pct}, .duty_ms = 10, .models = models};
}
placed_model part(std::uint32_t m, double rate) {
  return {.model = model_id{m}, .batch = 4, .rate_rps = rate};
}

TEST_CASE("a plan is applied to an empty engine, and its partitions run at their speed") {
  // L(1) = 2 ms on the whole device, 4 ms on half of it.
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  server s{grid};
  s.apply(plan_transition(grid, {}, {one(0, 50, {part(0, 10)}), one(0, 50, {part(1, 10)})}, {}));
  CHECK(s.applier.is_idle());
  CHECK(s.applier.live().size() == 2);
  s.engine.run_until(t0 + 100ms);
  REQUIRE_FALSE(s.submit(model_id{0}, 100ms));
  REQUIRE_FALSE(s.submit(model_id{1}, 100ms));
  CHECK(s.requests[0].model != s.requests[1].model);
  s.engine.run_until(t0 + 104ms - 1ns);
  CHECK(s.requests[0].ends == 0);
  s.engine.run_until(t0 + 104ms);  // Both: the halves do not wait for each other.
  CHECK(s.requests[0].how == outcome::completed);
  CHECK(s.requests[1].how == outcome::completed);
  // A tenth of a millisecond on: the partition of model 0 becomes the whole device.
  s.apply(plan_transition(grid, s.applier.live(), {one(0, 100, {part(0, 10)})}, {}));
  CHECK(s.submit(model_id{1}, 100ms) == refusal::unknown_model);
  const time_point start = s.engine.now();
  REQUIRE_FALSE(s.submit(model_id{0}, 100ms));
  s.engine.run_until(start + 2ms);
  CHECK(s.requests.back().how == outcome::completed);
}

TEST_CASE("a partition drains before it goes: what it was given is served by it") {
  const packing::latency_grid grid{{packing::test::unit_model("a", 100)}, packing::test::halves()};
  server s{grid};
  s.apply(plan_transition(grid, {}, {one(0, 50, {part(0, 10)})}, {.gpus = 2}));
  const time_point start = s.engine.now();
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(s.submit(model_id{0}, 100ms));
  s.engine.run_until(start + 1ms);
  s.applier.begin(
      plan_transition(grid, s.applier.live(), {one(0, 100, {part(0, 10)})}, {.gpus = 2}));
  CHECK_FALSE(s.applier.advance(s.engine.now()));  // Warms up on the other device: 2 ms.
  CHECK(s.requests[0].ends == 0);
  s.engine.run_until(start + 3ms);
  CHECK_FALSE(
      s.applier.advance(s.engine.now()));  // Switched; waits for the batch of 3: 2 (1 + 3) = 8 ms.
  s.engine.run_until(start + 8ms);
  CHECK(s.ended(outcome::completed) == 3);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK_THROWS_AS(
      [&] {
        s.applier.begin(plan_transition(grid, s.applier.live(), {one(0, 50, {part(0, 1)})}, {}));
        s.applier.begin({});
      }(),
      config_error);
}

TEST_CASE("requests go where least waits for the planned rate") {
  const packing::latency_grid grid{{packing::test::unit_model("a", 100)}, packing::test::halves()};
  server s{grid};
  s.apply(plan_transition(grid, {}, {one(0, 100, {part(0, 30)}), one(1, 100, {part(0, 10)})},
                          {.gpus = 2}));
  const std::vector<route> to = s.router.routes(model_id{0});
  REQUIRE(to.size() == 2);
  // Nothing is dispatched before the engine runs: (w + 1) / 30 against (w + 1) / 10. Of equals, the
  // first: 1/30, 2/30, then 3/30 = 1/10 the first, 1/10 the second, and again.
  for (int i = 0; i < 8; ++i) REQUIRE_FALSE(s.submit(model_id{0}, 100ms));
  CHECK(std::ranges::count(s.requests, to[0].instance, &request::model) == 6);
  CHECK(s.requests[3].model == to[1].instance);
  s.engine.run_until(s.engine.now() + 100ms);
  CHECK(s.ended(outcome::completed) == 8);
}

TEST_CASE(
    "a first run that hangs is left behind after its time, and the rest of the plan goes on") {
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  const packing::plan both{one(0, 100, {part(0, 10)}), one(1, 100, {part(1, 10)})};
  server s{grid, {{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 5s}}};
  s.begin(both, {.gpus = 2});
  CHECK_FALSE(s.applier.advance(s.engine.now()));
  s.engine.run_until(t0 + 1s);
  CHECK_FALSE(s.applier.advance(t0 + 1s));
  CHECK(s.applier.set_aside().empty());
  s.engine.run_until(t0 + 1001ms);
  CHECK(s.applier.advance(t0 + 1001ms));  // More than a second.
  CHECK(s.applier.was_cut());
  CHECK(s.applier.set_aside() == std::vector{device_id{0}});
  CHECK(s.applier.sick() == std::vector{sick_partition{device_id{0}, device_id{0}, true}});
  CHECK_FALSE(s.applier.take_back());
  // The partition is there with its model, which serves nobody, and it keeps its share.
  REQUIRE(s.applier.live().size() == 2);
  CHECK(s.applier.live()[0].is_out);
  CHECK(s.applier.live()[0].what.models.empty());
  CHECK(s.applier.live()[0].idle == std::vector{model_id{0}});
  s.begin(both, {.gpus = 2});
  CHECK(s.ends_within(2ms));  // L(1) of b.
  CHECK_FALSE(s.applier.was_cut());
  CHECK_FALSE(s.submit(model_id{1}, 100ms));
  CHECK(s.submit(model_id{0}, 100ms) == refusal::unknown_model);
  // It lets go after 5 s, and needs 2 ms then.
  s.engine.run_until(t0 + 5002ms - 1ns);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK_FALSE(s.applier.take_back());
  s.engine.run_until(t0 + 5002ms);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.sick().empty());
  CHECK(s.applier.take_back());
  CHECK(s.applier.set_aside().empty());
  s.begin(both, {.gpus = 2});
  CHECK(s.ends_within(0ms));  // It is warm.
  CHECK_FALSE(s.submit(model_id{0}, 100ms));
  s.engine.run_until(s.engine.now() + 2ms);
  CHECK(s.ended(outcome::completed) == 2);
}

TEST_CASE("a partition that hangs while it drains holds up nobody, and goes when it lets go") {
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100),
       packing::test::unit_model("c", 100)},
      packing::test::halves()};
  const packing::transition_limits limits{.gpus = 3};
  // Partition 0 hangs from 100 ms to 3 s; it is to make room for c, and so is that of device 1.
  server s{grid,
           {{.at = 100ms, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 2900ms}}};
  s.begin({one(0, 100, {part(0, 10)}), one(1, 100, {part(0, 10)}), one(2, 100, {part(1, 10)})},
          limits);
  REQUIRE(s.ends_within(10ms));
  s.engine.run_until(t0 + 200ms);
  REQUIRE_FALSE(s.submit(model_id{0}, 5s));  // To the first.
  s.engine.run_until(t0 + 200ms);
  const packing::plan next{one(0, 50, {part(2, 10)}), one(0, 50, {part(2, 10)}),
                           one(1, 50, {part(2, 10)}), one(1, 50, {part(2, 10)}),
                           one(2, 100, {part(0, 10), part(1, 10)})};
  s.begin(next, limits);
  // a is loaded on device 2, 2 ms; then partition 0 drains. Its batch hangs after
  // 4 · (3 · 2 + 50) = 224 ms.
  CHECK_FALSE(s.ends_within(222ms));
  CHECK(s.applier.set_aside().empty());
  CHECK(s.ends_within(2ms));
  CHECK(s.engine.now() == t0 + 424ms);
  CHECK(s.applier.was_cut());
  CHECK(s.applier.set_aside() == std::vector{device_id{0}});
  CHECK(s.applier.sick() == std::vector{sick_partition{device_id{0}, device_id{0}, false}});
  s.begin(next, limits);
  REQUIRE(s.ends_within(50ms));
  CHECK(s.router.routes(model_id{2}).size() == 2);  // The halves of device 1, in time.
  CHECK_FALSE(s.submit(model_id{2}, 100ms));
  s.engine.run_until(t0 + 1s);
  // Its request is not tried again.
  CHECK(s.ended(outcome::completed) == 1);
  CHECK(s.ended(outcome::failed) == 1);
  CHECK(s.applier.live().size() == 4);
  s.engine.run_until(t0 + 3002ms - 1ns);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK_FALSE(s.applier.take_back());
  // The batch ends at 3.002 s, and nothing is left that the device could be probed with.
  s.engine.run_until(t0 + 3003ms);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.live()[0].idle.empty());
  REQUIRE(s.applier.take_back());
  s.begin(next, limits);
  REQUIRE(s.ends_within(50ms));
  CHECK(s.router.routes(model_id{2}).size() == 4);
  CHECK(s.applier.live().size() == 5);
}

TEST_CASE("what was begun on a GPU that is well is ended before the next transition is made") {
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  const packing::transition_limits limits{.gpus = 2};
  server s{grid, {{.at = 100ms, .device = device_id{0}, .kind = fault_kind::hang}}};
  s.begin({one(0, 100, {part(0, 10)})}, limits);
  REQUIRE(s.ends_within(10ms));
  s.engine.run_until(t0 + 200ms);
  REQUIRE_FALSE(s.submit(model_id{0}, 5s));
  // It is out after 224 ms, one millisecond after b has begun to warm up on device 1.
  s.engine.run_until(t0 + 423ms);
  const packing::plan next{one(0, 100, {part(0, 20)}), one(1, 50, {part(1, 10)}),
                           one(1, 50, {part(1, 10)})};
  s.begin(next, limits);
  CHECK_FALSE(s.applier.advance(s.engine.now()));
  s.engine.run_until(t0 + 424ms);
  CHECK_FALSE(s.applier.advance(s.engine.now()));
  CHECK(s.applier.set_aside() == std::vector{device_id{0}});
  CHECK_FALSE(s.applier.is_idle());
  s.engine.run_until(t0 + 427ms);  // L(1) on a half: 4 ms.
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.was_cut());
  CHECK(s.router.routes(model_id{1}).empty());
  s.begin(next, limits);
  CHECK(s.ends_within(4ms));  // Only the second is to be warmed up.
  CHECK(s.router.routes(model_id{1}).size() == 2);
}

TEST_CASE("a GPU is not taken back while a first run that was begun there goes on") {
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  server s{grid,
           {{.at = 100ms, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 400ms},
            {.at = 300ms, .device = device_id{1}, .kind = fault_kind::hang, .lasts = 900ms}}};
  s.begin({one(0, 50, {part(0, 10)})}, {});
  REQUIRE(s.ends_within(10ms));
  s.engine.run_until(t0 + 200ms);
  REQUIRE_FALSE(s.submit(model_id{0}, 5s));
  s.engine.run_until(t0 + 400ms);
  s.begin({one(0, 50, {part(0, 10)}), one(0, 50, {part(1, 10)})}, {});
  CHECK_FALSE(s.applier.advance(s.engine.now()));  // b warms up, which hangs, too, for 800 ms.
  // Partition 0 is out at 200 + 4 · (3 · 4 + 50) = 448 ms, lets go at 504, and is probed at 548.
  s.engine.run_until(t0 + 448ms);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.set_aside() == std::vector{device_id{0}});
  s.engine.run_until(t0 + 552ms);
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.sick().empty());
  CHECK_FALSE(s.applier.take_back());
  s.engine.run_until(t0 + 1204ms);  // 4 ms behind the end of the hang.
  CHECK(s.applier.advance(s.engine.now()));
  CHECK(s.applier.take_back());
}

TEST_CASE("a limit of no time for first runs is an error") {
  const packing::latency_grid grid{{packing::test::unit_model("a", 100)}, packing::test::halves()};
  server s{grid};
  CHECK_THROWS_AS((plan_applier{s.host, s.router, 0s}), config_error);
}

TEST_CASE("while random plans are applied no request fails, and each model is always served") {
  std::size_t transitions = 0;
  std::size_t accepted = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::uint32_t gpus = 1 + random.below(4U);
    const packing::latency_grid grid{packing::test::random_profiles(random, 4), {}};
    const packing::transition_limits limits{
        .gpus = gpus,
        .memory_mb = random.one_in(2) ? 9000 : std::numeric_limits<double>::infinity()};
    server s{grid};
    // One request of each served model about every 40 SLOs, with time enough for any partition.
    const auto pass_time = [&] {
      s.engine.run_until(s.engine.now() + random.below(2000U) * 1us);
      for (std::uint32_t m = 0; m < grid.models(); ++m) {
        if (!s.router.models[m] || !random.one_in(4)) continue;
        REQUIRE_FALSE(s.submit(model_id{m}, 10s));
        ++accepted;
      }
    };
    for (int n = 0; n < 6; ++n) {
      CAPTURE(n);
      packing::packing_problem p = packing::test::random_problem(random, grid, gpus, 0.7 * gpus);
      p.memory_mb = limits.memory_mb;
      const packing::packing_result r = packing::elastic{}(grid, p);
      if (!r.schedulable()) continue;
      packing::transition moves = plan_transition(grid, s.applier.live(), r.plan, limits);
      ++transitions;
      std::vector<bool> next(grid.models(), false);
      for (const packing::gpulet& g : r.plan) {
        for (const placed_model& m : g.models) next[m.model.index()] = true;
      }
      for (std::uint32_t m = 0; m < grid.models(); ++m) {
        const bool pauses = std::ranges::count(moves.interrupted, model_id{m}) > 0;
        s.router.models[m] = s.router.models[m] && next[m] && !pauses;
      }
      s.applier.begin(std::move(moves));
      do {
        pass_time();
      } while (!s.applier.advance(s.engine.now()));
      s.router.models = next;
      for (int i = 0; i < 20; ++i) pass_time();
    }
    s.engine.run_until(s.engine.now() + 20s);
    CHECK(s.engine.in_flight() == 0);
    for (const asked& r : s.requests) {
      REQUIRE(r.ends == 1);
      REQUIRE(r.how == outcome::completed);
    }
  }
  CHECK(transitions > 150);
  CHECK(accepted > 5000);
}

TEST_CASE("as rates move a running engine plans anew from what it counts, and no request fails") {
  // A whole device carries 889 a second of either model, a half 444.
  const packing::latency_grid grid{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  const packing::transition_limits limits{.gpus = 3};
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    server s{grid};
    packing::periodic_planner planner{
        grid, {.gpus = limits.gpus}, packing::elastic{}, {.replan = {.period = 5s}}};
    s.apply(plan_transition(grid, {}, planner.plan_for({60, 800}), limits));
    s.router.models = {true, true};
    const auto used_by = [&s](std::uint32_t m) {
      double rate = 0;
      for (const packing::live_gpulet& g : s.applier.live()) {
        for (const placed_model& x : g.what.models) rate += x.model.value() == m ? x.rate_rps : 0;
      }
      return rate;
    };
    const double before[] = {used_by(0), used_by(1)};
    int plans = 0;
    std::size_t seen = 0;
    for (int period = 0; period < 24; ++period) {
      // While one rises to 800 a second the other falls to 60, within a minute.
      const double part = std::clamp((period - 3) / 12.0, 0.0, 1.0);
      const double rates[] = {60 + 740 * part, 800 - 740 * part};
      std::vector<std::uint64_t> arrived(2, 0);
      const time_point end = s.engine.now() + planner.period();
      time_point next[2];
      const auto gap = [&random](double rate) {
        const double u = (random.below(1'000'000U) + 1) / 1e6;
        return duration{static_cast<std::int64_t>(-std::log(u) / rate * 1e9)};
      };
      for (std::size_t m = 0; m < 2; ++m) next[m] = s.engine.now() + gap(rates[m]);
      while (std::min(next[0], next[1]) < end) {
        const std::size_t m = next[0] <= next[1] ? 0 : 1;
        s.engine.run_until(next[m]);
        s.applier.advance(s.engine.now());
        REQUIRE_FALSE(s.submit(model_id{static_cast<std::uint32_t>(m)}, 1s));
        ++arrived[m];
        next[m] += gap(rates[m]);
      }
      s.engine.run_until(end);
      const std::size_t ended = s.ended(outcome::completed);
      const auto fresh = planner.end_period(arrived, ended - seen, 0);
      seen = ended;
      if (!fresh) continue;
      REQUIRE(s.applier.advance(s.engine.now()));  // A transition ends within a period.
      packing::transition moves = plan_transition(grid, s.applier.live(), *fresh, limits);
      CHECK(moves.interrupted.empty());
      s.applier.begin(std::move(moves));
      ++plans;
    }
    s.engine.run_until(s.engine.now() + 2s);
    CHECK(s.applier.advance(s.engine.now()));
    CHECK(s.engine.in_flight() == 0);
    CHECK(plans >= 5);
    CHECK(s.requests.size() > 80'000);
    for (const asked& r : s.requests) {
      REQUIRE(r.ends == 1);
      REQUIRE(r.how == outcome::completed);
    }
    // The plan in service has followed: what was small is large now.
    CHECK(used_by(0) > 4 * before[0]);
    CHECK(used_by(1) < before[1] / 4);
  }
}
}  // namespace
}  // namespace cohort::engine::plan_applier_test
