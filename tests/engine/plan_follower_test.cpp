// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_follower.hpp>

#include <cohort/packing/moves/periodic_planner.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <engine/planned_server.hpp>
#include <packing/random_demand.hpp>
#include <support/random_source.hpp>

namespace cohort::engine {
namespace {
using namespace std::chrono_literals;
using test_support::asked;
using test_support::planned_server;
constexpr time_point t0{};

using planner_type = packing::periodic_planner<packing::elastic>;
using follower_type =
    plan_follower<planned_server::host_type, planned_server::watched_router, planner_type>;

/// The server with its planner.
struct followed_server : planned_server {
  followed_server(const packing::latency_grid& g, std::uint32_t gpus, duration period,
                  const reality& on = {})
      : planned_server{g, on},
        planner{g, {.gpus = gpus}, packing::elastic{}, {.replan = {.period = period}}},
        follower{g, {.gpus = gpus}, host, router} {
    on_end = [this](const asked& a) { follower.ended(a.how == outcome::completed); };
  }
  std::optional<refusal> ask(model_id m, duration slo) {
    follower.arrived(m);
    return submit(m, slo);
  }
  /// Lets time pass; the follower is called when it wants to be, or a millisecond later while it
  /// waits for something.
  void run_until(time_point until) {
    while (engine.now() < until) {
      const time_point next = follower.advance(engine.now());
      engine.run_until(std::min(until, std::max(next, engine.now() + 1ms)));
    }
  }
  planner_type planner;
  follower_type follower;
};

const packing::latency_grid& two_models() {
  static const packing::latency_grid g{
      {packing::test::unit_model("a", 100), packing::test::unit_model("b", 100)},
      packing::test::halves()};
  return g;
}

TEST_CASE("a plan without a planner is put into service and kept") {
  followed_server s{two_models(), 1, 1s};
  const packing::plan p = s.planner.plan_for({50, 50});
  CHECK(s.follower.begin(p).empty());
  CHECK_FALSE(s.follower.is_idle());
  s.run_until(t0 + 100ms);
  CHECK(s.follower.is_idle());
  CHECK(s.follower.live().size() == p.size());
  CHECK(s.follower.advance(s.engine.now()) == never);
  for (int i = 0; i < 1000; ++i) s.follower.arrived(model_id{0});  // Nobody plans for them.
  s.run_until(t0 + 10s);
  CHECK(s.follower.plans() == 1);
  CHECK_THROWS_AS(s.follower.begin({{.gpu = device_id{1}, .size = device_share{50}}}),
                  config_error);  // There is one GPU: 0.
}
TEST_CASE("periods end when they should, and a plan that serves the load stays") {
  followed_server s{two_models(), 2, 1s};
  const packing::plan p = s.planner.plan_for({50, 50});
  s.planner.adopt(p);
  s.follower.begin(p);
  s.run_until(t0 + 100ms);
  s.follower.follow(s.planner, s.engine.now());
  CHECK(s.follower.advance(s.engine.now()) == t0 + 1100ms);
  // 20 a second each, in even gaps: far within the plan, and not far enough below it.
  for (time_point t = s.engine.now(); t < t0 + 1100ms; t += 25ms) {
    s.run_until(t);
    REQUIRE_FALSE(s.ask(model_id{0}, 100ms));
    REQUIRE_FALSE(s.ask(model_id{1}, 100ms));
  }
  s.run_until(t0 + 1100ms);
  CHECK(s.follower.advance(s.engine.now()) == t0 + 2100ms);
  // Then model 0 asks for more than one device does: 8 in 9 ms.
  for (time_point t = s.engine.now(); t < t0 + 2100ms; t += 1ms) {
    s.run_until(t);
    static_cast<void>(s.ask(model_id{0}, 100ms));
  }
  const std::uint64_t before = s.follower.plans();
  s.run_until(t0 + 2200ms);
  CHECK(s.follower.plans() == before + 1);
  CHECK(s.planner.planned_rps()[0] > 900);
}
/// Never finds a plan.
struct helpless_planner {
  duration lasted{0};
  [[nodiscard]] duration period() const { return 1s; }
  std::optional<packing::plan> end_period(std::span<const std::uint64_t>, std::uint64_t,
                                          std::uint64_t, duration d) {
    lasted = d;
    return packing::plan{};
  }
};
TEST_CASE("an empty plan does not replace one in service, and a period is as long as it was") {
  planned_server s{two_models()};
  helpless_planner helpless;
  plan_follower<planned_server::host_type, planned_server::watched_router, helpless_planner> f{
      two_models(), {.gpus = 1}, s.host, s.router};
  f.begin(packing::periodic_planner{two_models(), {.gpus = 1}, packing::elastic{}, {}}.plan_for(
      {50, 50}));
  while (f.advance(s.engine.now()) != never) s.engine.run_until(s.engine.now() + 1ms);
  const std::size_t partitions = f.live().size();
  const time_point began = s.engine.now();
  f.follow(helpless, began);
  CHECK(f.advance(began + 3s) == began + 4s);  // It was called late.
  CHECK(helpless.lasted == 3s);
  CHECK(f.live().size() == partitions);
  CHECK(f.plans() == 1);
}
/// Partitions that fail or hang for a while, some of them while they are probed or taken away.
reality random_faults(test::random_source& random) {
  reality faulty;
  for (std::uint32_t d = 0; d < 12; ++d) {
    for (int i = 0; i < 3; ++i) {
      const time_point from = t0 + 1s + 1ms * random.below(12'000U);
      faulty.faults.push_back({.at = from - t0,
                               .device = device_id{d},
                               .kind = random.below(2U) == 0 ? fault_kind::fail : fault_kind::hang,
                               .lasts = 1ms * (1 + random.below(4000U))});
    }
  }
  return faulty;
}

TEST_CASE("while random loads rise and fall and plans change, every request ends once") {
  std::uint64_t changes = 0;
  std::size_t failed = 0;
  for (std::uint64_t seed = 1; seed <= 208; ++seed) {
    CAPTURE(seed);
    const bool is_faulty = seed > 8;
    test::random_source random{seed};
    const std::uint32_t gpus = 1 + random.below(3U);
    const packing::latency_grid grid{packing::test::random_profiles(random, 4), {}};
    followed_server s{grid, gpus, 1s, is_faulty ? random_faults(random) : reality{}};
    const auto rates = [&] {
      return packing::test::random_problem(random, grid, gpus, 0.2 + random.below(8U) * 0.1)
          .rates_rps;
    };
    std::vector<double> now = rates();
    // Every model is served from the start; a plan need not have those without load.
    for (double& r : now) r = std::max(r, 1.0);
    const packing::plan first = s.planner.plan_for(now);
    s.planner.adopt(first);
    s.follower.begin(first);
    s.run_until(t0 + 1s);
    REQUIRE(s.follower.is_idle());
    s.follower.follow(s.planner, s.engine.now());
    std::size_t asked_for = 0;
    std::size_t refused = 0;
    for (int second = 0; second < 12; ++second) {
      if (second % 3 == 0) now = rates();
      const time_point end = s.engine.now() + 1s;
      std::vector<time_point> next;
      const auto gap = [&](std::size_t m) {
        if (now[m] <= 0) return unbounded / 4;
        return from_seconds(-std::log((1 + random.below(1'000'000U)) / 1'000'001.0) / now[m]);
      };
      for (std::size_t m = 0; m < now.size(); ++m) next.push_back(s.engine.now() + gap(m));
      for (;;) {
        const auto first_model = std::ranges::min_element(next);
        if (*first_model >= end) break;
        s.run_until(*first_model);
        const auto m = static_cast<std::size_t>(first_model - next.begin());
        ++asked_for;
        const model_id id{static_cast<std::uint32_t>(m)};
        if (s.ask(id, from_seconds(grid.slo_ms(m) * 1e-3))) ++refused;
        *first_model += gap(m);
      }
      s.run_until(end);
    }
    s.run_until(s.engine.now() + 60s);
    CHECK(s.engine.in_flight() == 0);
    CHECK(s.requests.size() + refused == asked_for);
    for (const asked& r : s.requests) REQUIRE(r.ends == 1);
    if (!is_faulty) CHECK(s.ended(outcome::failed) == 0);
    failed += s.ended(outcome::failed);
    CHECK(s.ended(outcome::cancelled) == 0);
    changes += s.follower.plans() - 1;
  }
  CHECK(changes > 24);
  CHECK(failed > 100);
}
}  // namespace
}  // namespace cohort::engine
