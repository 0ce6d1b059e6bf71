// SPDX-License-Identifier: Apache-2.0
// What becomes of requests where partitions of a plan hang or fail: in virtual time.
#include <cohort/engine/plan_router.hpp>

#include <doctest/doctest.h>

#include <cohort/core/reality.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine::faulty_partitions_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(duration since) { return time_point{} + since; }
constexpr model_id the_model{0};

struct asked : request {
  std::vector<outcome> ends;
  std::uint32_t moves = 0;
  bool was_failed = false;
  bool was_tried_twice = false;
};

/// One model of l(b) = b + 5 ms, with an instance in each of several partitions; eager. What one
/// partition fails goes to another, once; what one that is out has not tried, once for each there
/// is.
struct fixture {
  using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
  struct handler {
    fixture* self;
    void operator()(request& r, outcome how) const {
      auto& mine = static_cast<asked&>(r);
      mine.was_tried_twice |= mine.was_failed && r.failed_on.has_value();
      if (how == outcome::failed && mine.moves < 2 * self->partitions &&
          may_move(r, self->engine.has_device(r.model), mine.was_failed)) {
        ++mine.moves;
        elsewhere others{self->engine, r.model};
        if (!self->router.submit(others, r, the_model)) return;
      }
      mine.ends.push_back(how);
    }
  };
  using engine_type =
      manual_engine<basic_engine_core<scheduler>, profile_backend, inline_completion<handler>>;

  fixture(std::vector<fault> faults, std::uint32_t n, std::uint32_t queue_capacity = 64)
      : partitions{n}, backend{reality{.noise = {}, .timers = {}, .faults = std::move(faults)}} {
    backend.bind(engine);
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    std::vector<route> routes;
    for (std::uint32_t i = 0; i < n; ++i) {
      const deferred::pool_id pool{i};
      engine.add_device([&](device_id d) { backend.add_device(d); }, pool, 1U);
      const model_id m = engine.add_model(
          {.scheduling = {.latency = l, .slo = 1s, .queue_capacity = queue_capacity},
           .is_repeatable = true},
          [&](model_id id) { backend.add_model(id, l); }, pool);
      routes.push_back({m, 100});
    }
    router.set(the_model, routes);
  }
  std::optional<refusal> submit(duration slo = 1s) {
    asked& r = requests.emplace_back();
    r.arrival = engine.now();
    r.deadline = engine.now() + slo;
    const std::optional<refusal> why = router.submit(engine, r, the_model);
    if (why) requests.pop_back();
    return why;
  }
  [[nodiscard]] std::size_t count(outcome how) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        requests, [how](const asked& r) { return r.ends == std::vector{how}; }));
  }

  std::uint32_t partitions;
  std::deque<asked> requests;
  plan_router router{1};
  profile_backend backend;
  engine_type engine{basic_engine_core<scheduler>{
                         scheduler{}, 0s, {}, {.floor = 50ms, .retries = 0, .hands_back = true}},
                     backend, inline_completion<handler>{{this}}};
};

TEST_CASE("what waits for a partition that hangs goes to another one, and what hangs fails") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang}}, 2};
  for (int i = 0; i < 12; ++i) REQUIRE_FALSE(f.submit());
  // Half of them at each: four in a batch, two that wait for it.
  f.engine.run_until(at(307ms));
  CHECK(f.count(outcome::completed) == 6);
  CHECK(f.engine.has_device(model_id{0}));
  // 4 · (3 · 9 + 50) = 308 ms; then a batch of two takes 7.
  f.engine.run_until(at(308ms));
  CHECK_FALSE(f.engine.has_device(model_id{0}));
  CHECK(f.engine.has_device(model_id{1}));
  CHECK(f.router.has_device(f.engine, the_model));
  CHECK(f.count(outcome::failed) == 4);
  f.engine.run_until(at(314ms));
  CHECK(f.count(outcome::completed) == 6);
  f.engine.run_until(at(315ms));
  CHECK(f.count(outcome::completed) == 8);
  // From now on nothing goes there.
  for (int i = 0; i < 8; ++i) REQUIRE_FALSE(f.submit());
  f.engine.run_until(at(350ms));
  CHECK(f.count(outcome::completed) == 16);
}

TEST_CASE("a partition that fails is out after three batches, and nobody has lost by it") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::fail, .lasts = 1s}}, 2};
  for (int i = 0; i < 200; ++i) {
    REQUIRE_FALSE(f.submit());
    f.engine.run_until(at((i + 1) * 10ms));
  }
  f.engine.run_until(at(3s));
  CHECK(f.count(outcome::completed) == 200);
  CHECK(f.engine.has_device(model_id{0}));  // A probe after the second it lasted.
}

TEST_CASE(
    "without another place, requests end at once, and new ones are refused until it is back") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 500ms}}, 1};
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(f.submit());
  f.engine.run_until(at(295ms));  // 4 · (3 · 8 + 50) = 296 ms.
  CHECK(f.count(outcome::failed) == 0);
  f.engine.run_until(at(296ms));
  CHECK(f.count(outcome::failed) == 3);
  CHECK_FALSE(f.router.has_device(f.engine, the_model));
  CHECK(f.submit() == refusal::no_device);
  // One that is on its way to the instance all the same.
  asked direct;
  direct.model = model_id{0};
  direct.deadline = at(2s);
  REQUIRE_FALSE(f.engine.submit(direct));
  f.engine.run_until(at(297ms));
  CHECK(direct.ends == std::vector{outcome::failed});
  f.engine.run_until(at(1s));
  REQUIRE_FALSE(f.submit());
  f.engine.run_until(at(2s));
  CHECK(f.count(outcome::completed) == 1);
}

/// A device hangs in a batch that begins with a request of size 2, and does any other at once.
struct poisoned_backend {
  std::vector<batch_ticket> ends;
  std::vector<device_id> hanging;

  void launch(const deferred::batch& b) {
    if (b.requests.front().size == 2) {
      hanging.push_back(b.device);
    } else {
      ends.push_back(b.at());
    }
  }
  [[nodiscard]] bool abandon(const deferred::batch&) const noexcept { return true; }
};
struct ignore {
  void operator()(const request&, outcome) const {}
};

/// Two models, each with an instance in each of four partitions. Of sixty requests one is of the
/// first, and hangs where it runs. @returns How many partitions hang.
std::size_t hanging_of_four(bool count_as_one) {
  using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
  poisoned_backend backend{};
  manual_engine engine{basic_engine_core<scheduler>{
                           scheduler{}, 0s, {}, {.floor = 50ms, .retries = 0, .hands_back = true}},
                       backend, inline_completion{ignore{}}};
  plan_router router{2};
  for (std::uint32_t m = 0; m < 2; ++m) {
    std::vector<route> routes;
    for (std::uint32_t i = 0; i < 4; ++i) {
      const deferred::pool_id pool{i};
      if (m == 0) engine.add_device([](device_id) {}, pool, 1U);
      model_config c{
          .scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 1s}};
      if (count_as_one) c.counts_as = model_id{m};
      routes.push_back({engine.add_model(c, [](model_id) {}, pool), 100});
    }
    router.set(model_id{m}, routes);
  }
  std::deque<request> requests;
  for (int i = 0; i < 600; ++i) {
    request& r = requests.emplace_back();
    const bool is_first = i % 60 == 59;
    r.size = is_first ? 2 : 1;
    r.arrival = engine.now();
    r.deadline = engine.now() + 1s;
    [[maybe_unused]] const auto why = router.submit(engine, r, model_id{is_first ? 0U : 1U});
    engine.run_until(at((i + 1) * 10ms));
    for (const batch_ticket& e : std::exchange(backend.ends, {})) engine.complete(e, false);
    engine.run_until(engine.now());
  }
  return backend.hanging.size();
}

TEST_CASE("a model that makes two partitions hang is suspended on the others, too") {
  CHECK(hanging_of_four(false) == 4);
  CHECK(hanging_of_four(true) == 2);
}

TEST_CASE(
    "whatever partitions do, each request ends once; with one that is well, in time unless one "
    "hung with it or two failed it") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const auto partitions = static_cast<std::uint32_t>(2 + random.below(4U));
    std::vector<fault> faults;
    for (std::uint32_t d = 1; d < partitions; ++d) {  // The first is well.
      for (std::uint32_t k = random.below(3U); k > 0; --k) {
        faults.push_back({.at = random.below(2000U) * 1ms,
                          .device = device_id{d},
                          .kind = random.below(2U) == 0 ? fault_kind::hang : fault_kind::fail,
                          .lasts = (1 + random.below(1000U)) * 1ms});
      }
    }
    fixture f{std::move(faults), partitions, 4096};
    for (time_point now = at(0s); now < at(2s);) {
      now += random.below(20U) * 1ms;
      f.engine.run_until(now);
      for (std::uint32_t i = random.below(6U); i > 0; --i) REQUIRE_FALSE(f.submit(5s));
    }
    f.engine.run_until(at(20s));
    for (const asked& r : f.requests) {
      REQUIRE(r.ends.size() == 1);
      // One hung with it, or two failed it, though one that is well was there.
      CHECK((r.ends[0] == outcome::completed ||
             (r.ends[0] == outcome::failed && (r.is_spent || r.was_tried_twice))));
    }
  }
}

}  // namespace
}  // namespace cohort::engine::faulty_partitions_test
