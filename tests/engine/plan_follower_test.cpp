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

namespace cohort::engine::plan_follower_test {
namespace {
using namespace std::chrono_literals;
using test_support::asked;
using test_support::planned_server;
constexpr time_point t0{};

/// Notes for how many GPUs it was asked to plan.
struct planner_type : packing::periodic_planner<packing::elastic> {
  using periodic_planner::periodic_planner;
  packing::plan plan_on(std::uint32_t gpus) {
    asked_for.push_back(gpus);
    return periodic_planner::plan_on(gpus);
  }
  std::vector<std::uint32_t> asked_for{};
};
using follower_type =
    plan_follower<planned_server::host_type, planned_server::watched_router, planner_type>;

/// The server with its planner.
struct followed_server : planned_server {
  followed_server(const packing::latency_grid& g, std::uint32_t gpus, duration period,
                  const reality& on = {}, const health_options& health = {},
                  follower_options o = {}, std::vector<double> least_rps = {})
      : planned_server{g, on, health},
        planner{g,
                {.gpus = gpus},
                packing::elastic{},
                {.replan = {.period = period}, .least_rps = std::move(least_rps)}},
        follower{g, {.gpus = gpus}, host, router, o} {
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
  CHECK(s.follower.advance(s.engine.now()) == s.engine.now() + 100ms);  // Is anybody out?
  for (int i = 0; i < 1000; ++i) s.follower.arrived(model_id{0});       // Nobody plans for them.
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
  CHECK(s.follower.advance(s.engine.now()) == t0 + 200ms);
  CHECK(s.follower.advance(t0 + 1050ms) == t0 + 1100ms);
  // 20 a second each, in even gaps: far within the plan, and not far enough below it.
  for (time_point t = s.engine.now(); t < t0 + 1100ms; t += 25ms) {
    s.run_until(t);
    REQUIRE_FALSE(s.ask(model_id{0}, 100ms));
    REQUIRE_FALSE(s.ask(model_id{1}, 100ms));
  }
  s.run_until(t0 + 1100ms);
  CHECK(s.follower.advance(s.engine.now()) == t0 + 1200ms);
  CHECK(s.follower.advance(t0 + 2050ms) == t0 + 2100ms);
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
  std::vector<std::uint32_t> asked_for{};
  [[nodiscard]] duration period() const { return 1s; }
  packing::plan plan_on(std::uint32_t gpus) {
    asked_for.push_back(gpus);
    return {};
  }
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
  while (f.advance(s.engine.now()) == s.engine.now()) s.engine.run_until(s.engine.now() + 1ms);
  const std::size_t partitions = f.live().size();
  const time_point began = s.engine.now();
  f.follow(helpless, began);
  CHECK(f.advance(began + 3s) == began + 3100ms);  // It was called late.
  CHECK(f.advance(began + 3950ms) == began + 4s);
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

constexpr health_options quick{
    .floor = 50ms, .longest_probe = 400ms, .retries = 0, .hands_back = true};

reality hangs(std::uint32_t device, duration at, duration lasts) {
  return {.noise = {},
          .timers = {},
          .faults = {
              {.at = at, .device = device_id{device}, .kind = fault_kind::hang, .lasts = lasts}}};
}
/// Requests of both models, of SLOs that nobody misses, every 10 ms. @returns How many are refused.
std::size_t ask_until(followed_server& s, time_point until) {
  std::size_t refused = 0;
  while (s.engine.now() < until) {
    s.run_until(s.engine.now() + 10ms);
    for (const model_id m : {model_id{0}, model_id{1}}) refused += s.ask(m, 60s).has_value();
  }
  return refused;
}
std::uint32_t used_on(const followed_server& s, std::uint32_t gpu) {
  std::uint32_t sum = 0;
  for (const packing::live_gpulet& g : s.follower.live()) {
    if (g.what.gpu == device_id{gpu} && !g.what.models.empty()) sum += g.what.size.percent();
  }
  return sum;
}

TEST_CASE("models of a GPU that is out get places on the others at once, and go back afterwards") {
  // 700 a second of either model: each has a device (889), and both do not fit on one.
  followed_server s{two_models(), 2, 2s, hangs(0, 1s, 4s), quick};
  const packing::plan p = s.planner.plan_for({700 / 1.1, 700 / 1.1});
  s.planner.adopt(p);
  s.follower.begin(p);
  s.run_until(t0 + 100ms);
  s.follower.follow(s.planner, s.engine.now());
  REQUIRE(used_on(s, 0) == 100);
  REQUIRE(used_on(s, 1) == 100);
  CHECK(ask_until(s, t0 + 1s) == 0);
  // What comes after a second hangs, and is out 4 · (3 · 2 + 50) = 224 ms later. It is looked for
  // every 100 ms, so until 1.3 s at most its model is refused; then there is a first run of 2 ms.
  CHECK(ask_until(s, t0 + 1400ms) <= 8);
  CHECK(s.follower.set_aside() == std::vector{device_id{0}});
  CHECK(s.planner.asked_for == std::vector<std::uint32_t>{1});
  CHECK(s.planner.missing().part < 0.7);
  CHECK(s.follower.is_idle());
  for (const model_id m : {model_id{0}, model_id{1}}) {
    CHECK_FALSE(s.ask(m, 60s));
    CHECK(s.router.has_device(s.engine, m));
  }
  CHECK(used_on(s, 0) == 100);  // As it was: it serves who comes when it is back.
  // Back at 5 s, it counts from the end of the period on, at 6.1 s or little later.
  CHECK(ask_until(s, t0 + 6s) == 0);
  CHECK(s.follower.sick().empty());
  CHECK(s.follower.set_aside() == std::vector{device_id{0}});
  CHECK(ask_until(s, t0 + 6300ms) == 0);
  CHECK(s.follower.set_aside().empty());
  CHECK(s.planner.asked_for == std::vector<std::uint32_t>{1, 2});
  s.run_until(t0 + 70s);
  // One that came at 1 s, and those of 220 ms behind it, had no place to go to.
  CHECK(s.ended(outcome::failed) == 23);
  CHECK(s.ended(outcome::completed) == s.requests.size() - 23);
}
TEST_CASE(
    "without a planner a plan is put into service around a first run that hangs, then there") {
  followed_server s{two_models(), 2, 1s, hangs(0, 0s, 3s), quick, {.longest_warm_up = 500ms}};
  // Of different sizes, as nothing else tells devices apart.
  const packing::gpulet a{device_id{0}, device_share{50}, 10, {{model_id{0}, 1, 10}}};
  const packing::gpulet b{device_id{1}, device_share{100}, 10, {{model_id{1}, 1, 10}}};
  s.follower.begin({a, b});
  s.run_until(t0 + 400ms);
  CHECK_FALSE(s.follower.is_idle());
  CHECK(s.ask(model_id{1}, 60s) == refusal::unknown_model);
  s.run_until(t0 + 600ms);
  CHECK(s.follower.is_idle());
  CHECK(s.follower.sick() == std::vector{sick_partition{device_id{0}, device_id{0}, true}});
  CHECK_FALSE(s.ask(model_id{1}, 60s));
  CHECK(s.ask(model_id{0}, 60s) == refusal::unknown_model);
  CHECK(s.follower.plans() == 1);
  s.run_until(t0 + 3200ms);
  CHECK(s.follower.set_aside().empty());
  CHECK_FALSE(s.ask(model_id{0}, 60s));
  CHECK(s.follower.plans() == 1);
  CHECK(s.follower.live().size() == 2);
}
TEST_CASE("without a planner what hangs in service changes nothing but the routes that are taken") {
  followed_server s{two_models(), 2, 1s, hangs(0, 1s, 2s), quick};
  const packing::gpulet a{device_id{0}, device_share{100}, 10, {{model_id{0}, 1, 10}}};
  packing::gpulet both{
      device_id{1}, device_share{100}, 10, {{model_id{0}, 1, 10}, {model_id{1}, 1, 10}}};
  s.follower.begin({a, both});
  s.run_until(t0 + 900ms);
  CHECK(ask_until(s, t0 + 2s) == 0);
  const std::size_t partitions = s.follower.live().size();
  CHECK(s.follower.set_aside() == std::vector{device_id{0}});
  CHECK(ask_until(s, t0 + 4s) == 0);
  CHECK(s.follower.set_aside().empty());
  CHECK(s.follower.live().size() == partitions);
  CHECK(s.follower.plans() == 1);
  s.run_until(t0 + 70s);
  CHECK(s.ended(outcome::failed) == 1);  // The one that the partition hung with.
  CHECK(s.ended(outcome::completed) == s.requests.size() - 1);
}
TEST_CASE("a device that comes and goes within a period costs one plan, not one each time") {
  reality r = hangs(0, 1s, 400ms);
  r.faults.push_back(r.faults[0]);
  r.faults[1].at = 2s;
  r.faults.push_back(r.faults[0]);
  r.faults[2].at = 3s;
  followed_server s{two_models(), 2, 5s, r, quick};
  const packing::plan p = s.planner.plan_for({700 / 1.1, 700 / 1.1});
  s.planner.adopt(p);
  s.follower.begin(p);
  s.run_until(t0 + 100ms);
  s.follower.follow(s.planner, s.engine.now());
  ask_until(s, t0 + 5s);
  CHECK(s.planner.asked_for == std::vector<std::uint32_t>{1});
  ask_until(s, t0 + 6s);
  CHECK(s.planner.asked_for == std::vector<std::uint32_t>{1, 2});
  CHECK(s.follower.set_aside().empty());
}
TEST_CASE("where nothing can be planned for, the rest of the plan before goes on") {
  planned_server s{two_models(), hangs(0, 0s, unbounded), quick};
  helpless_planner helpless;
  plan_follower<planned_server::host_type, planned_server::watched_router, helpless_planner> f{
      two_models(), {.gpus = 2}, s.host, s.router, {.longest_warm_up = 300ms}};
  f.follow(helpless, t0);
  f.begin({{device_id{0}, device_share{50}, 10, {{model_id{0}, 1, 10}}},
           {device_id{1}, device_share{100}, 10, {{model_id{1}, 1, 10}}}});
  for (int i = 0; i < 500; ++i) {
    f.advance(s.engine.now());
    s.engine.run_until(s.engine.now() + 1ms);
  }
  CHECK(f.is_idle());
  CHECK(helpless.asked_for == std::vector<std::uint32_t>{1});
  CHECK_FALSE(s.submit(model_id{1}, 1s));
}
TEST_CASE("a look that takes no time is an error") {
  planned_server s{two_models()};
  using follower =
      plan_follower<planned_server::host_type, planned_server::watched_router, planner_type>;
  CHECK_THROWS_AS((follower{two_models(), {}, s.host, s.router, {.look = 0s}}), config_error);
  CHECK_THROWS_AS((follower{two_models(), {}, s.host, s.router, {.longest_warm_up = 0s}}),
                  config_error);
}

TEST_CASE("whatever partitions do while plans change, nothing waits for them, and who can serves") {
  std::size_t refused = 0;
  std::size_t failed = 0;
  std::size_t first_runs = 0;
  std::size_t without = 0;
  for (std::uint64_t seed = 1; seed <= 320; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t gpus = 1 + random.below(4U);
    const packing::latency_grid grid{packing::test::random_profiles(random, 3), {}};
    reality faulty;
    for (std::uint32_t k = 1 + random.below(12U); k > 0; --k) {
      faulty.faults.push_back({.at = random.one_in(4) ? 0s : 1ms * random.below(8000U),
                               .device = device_id{random.below(8U)},
                               .kind = random.one_in(3) ? fault_kind::fail : fault_kind::hang,
                               .lasts = 1ms * (1 + random.below(3000U))});
    }
    const bool has_planner = !random.one_in(4);
    health_options health = quick;
    health.suspends_models = false;  // A model that met many of these faults might be.
    followed_server s{grid,     gpus, 1s, faulty, health, {.look = 20ms, .longest_warm_up = 500ms},
                      {1, 1, 1}};
    s.on_end = [&](const asked& a) {
      s.follower.ended(a.how == outcome::completed);
      // Who did not complete had no place left, or was tried: one hung with it, or failed it.
      if (a.how == outcome::completed) return;
      REQUIRE(a.how == outcome::failed);
      if (!a.is_spent && !a.failed_on) REQUIRE_FALSE(s.router.has_device(s.engine, a.wanted));
      ++failed;
    };
    const auto rates = [&] {
      std::vector<double> r =
          packing::test::random_problem(random, grid, gpus, 0.1 + random.below(4U) * 0.1).rates_rps;
      for (double& x : r) x = std::max(x, 1.0);
      return r;
    };
    std::vector<double> now = rates();
    const packing::plan first = s.planner.plan_for(now);
    const auto left_out = s.planner.missing().left_out;
    s.planner.adopt(first);
    if (has_planner) s.follower.follow(s.planner, t0);
    s.follower.begin(first);
    time_point began = t0;                           // What is under way.
    std::vector<time_point> served(now.size(), t0);  // When it was last, or could not be.
    const auto is_left_out = [&](std::uint32_t m) {
      const auto& all = s.follower.plans() > 1 ? s.planner.missing().left_out : left_out;
      return std::ranges::find(all, m, &packing::shortfall::left_out_model::model) != all.end();
    };
    for (int part = 0; part < 480; ++part) {
      if (part % 80 == 0) now = rates();
      s.run_until(s.engine.now() + 25ms);
      if (s.follower.is_idle()) began = s.engine.now();
      REQUIRE(s.engine.now() - began < 3s);
      for (std::uint32_t m = 0; m < now.size(); ++m) {
        const bool nowhere = s.follower.set_aside().size() == gpus || !has_planner;
        if (nowhere || is_left_out(m) || s.router.has_device(s.engine, model_id{m})) {
          served[m] = s.engine.now();
        }
        REQUIRE(s.engine.now() - served[m] < 3s);  // Noticed, planned, loaded.
      }
      for (std::uint32_t m = 0; m < now.size(); ++m) {
        if (random.below(1'000'000U) > now[m] * 0.025 * 1e6) continue;
        const std::optional<refusal> why = s.ask(model_id{m}, 600s);
        if (!why) continue;
        REQUIRE_FALSE(s.router.has_device(s.engine, model_id{m}));
        ++refused;
      }
      for (const sick_partition& p : s.follower.sick()) first_runs += p.warms_up;
    }
    // The last fault is over after 11 s, and probes and periods are a second at most.
    s.run_until(t0 + 20s);
    CHECK(s.engine.in_flight() == 0);
    CHECK(s.follower.is_idle());
    CHECK(s.follower.sick().empty());
    CHECK(s.follower.set_aside().empty());
    if (!s.planner.asked_for.empty()) {
      CHECK(s.planner.asked_for.back() == gpus);
      ++without;
    }
    const std::size_t before = s.requests.size();
    // Some loads of some models cannot be served together.
    for (std::uint32_t m = 0; m < now.size(); ++m) {
      CHECK(s.ask(model_id{m}, 600s).has_value() == is_left_out(m));
    }
    s.run_until(t0 + 30s);
    for (const asked& r : s.requests) REQUIRE(r.ends == 1);
    for (std::size_t i = before; i < s.requests.size(); ++i) {
      CHECK(s.requests[i].how == outcome::completed);
    }
  }
  CHECK(refused > 100);
  CHECK(failed > 50);
  CHECK(first_runs > 100);
  CHECK(without > 100);
}
}  // namespace
}  // namespace cohort::engine::plan_follower_test
