// SPDX-License-Identifier: Apache-2.0
// The engine without a thread, over the backend that takes the time of profiles.
#include <cohort/engine/manual_engine.hpp>

#include <doctest/doctest.h>

#include <cohort/core/reality.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace cohort::engine::manual_engine_test {
namespace {
using namespace std::chrono_literals;

time_point at(duration d) { return time_point{} + d; }

/// One device and one model of l(b) = b + 5 ms; eager.
struct fixture {
  using scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;
  struct end {
    request_id who;
    outcome how;
    time_point when;
    friend bool operator==(const end&, const end&) = default;
  };
  struct note {
    fixture* f;
    void operator()(request& r, outcome how) const {
      f->ends.push_back({r.id, how, f->engine.now()});
    }
  };
  using engine_type =
      manual_engine<basic_engine_core<scheduler>, profile_backend, inline_completion<note>>;

  fixture() {
    backend.bind(engine);
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    device = engine.add_device([&](device_id d) { backend.add_device(d); });
    model = engine.add_model({.scheduling = {.latency = l, .slo = 50ms}},
                             [&](model_id id) { backend.add_model(id, l); });
  }
  request& submit() {
    request& r = requests.emplace_back();
    r.id = request_id{requests.size()};
    r.model = model;
    r.arrival = engine.now();
    r.deadline = engine.now() + 50ms;
    refused = engine.submit(r);
    return r;
  }
  static end done(std::uint64_t id, duration when) {
    return {request_id{id}, outcome::completed, at(when)};
  }

  std::vector<end> ends;
  std::deque<request> requests;
  std::optional<refusal> refused;
  profile_backend backend;
  engine_type engine{basic_engine_core<scheduler>{}, backend, inline_completion<note>{{this}}};
  device_id device;
  model_id model;
};

TEST_CASE("batches take the time of their profile, and nothing happens before its time") {
  fixture f;
  f.submit();
  f.engine.run_until(at(1ms));  // A batch of one, until 6 ms.
  f.submit();
  f.submit();
  f.engine.run_until(at(6ms) - 1ns);
  CHECK(f.engine.in_flight() == 3);
  CHECK(f.ends.empty());
  f.engine.run_until(at(6ms));
  CHECK(f.ends == std::vector{fixture::done(1, 6ms)});
  f.engine.run_until(at(20ms));  // A batch of two: 7 ms.
  CHECK(f.ends ==
        std::vector{fixture::done(1, 6ms), fixture::done(2, 13ms), fixture::done(3, 13ms)});
  CHECK(f.engine.now() == at(20ms));
  CHECK(f.engine.in_flight() == 0);
}
TEST_CASE("a cancelled request that waits ends at once") {
  fixture f;
  f.submit();
  f.engine.run_until(at(1ms));
  request& second = f.submit();
  f.engine.run_until(at(2ms));
  CHECK(f.engine.waiting(f.model) == 1);
  f.engine.cancel(second);
  f.engine.run_until(at(3ms));
  REQUIRE(f.ends.size() == 1);
  CHECK(f.ends[0].how == outcome::cancelled);
  CHECK(f.engine.waiting(f.model) == 0);
  f.engine.run_until(at(6ms));
  CHECK(f.ends.back() == fixture::done(1, 6ms));
}
TEST_CASE("a model that is removed takes no more requests and is gone after its last") {
  fixture f;
  f.submit();
  f.engine.run_until(at(1ms));
  time_point gone_at{};
  f.engine.remove_model(f.model, [&] { gone_at = f.engine.now(); });
  f.engine.run_until(at(2ms));
  CHECK_FALSE(f.engine.is_accepting(f.model));
  CHECK(gone_at == time_point{});
  f.submit();
  CHECK(f.refused.has_value());
  f.engine.run_until(at(10ms));
  CHECK(f.ends == std::vector{fixture::done(1, 6ms)});
  CHECK(gone_at == at(6ms));
}
TEST_CASE("a device whose setup throws is not there") {
  fixture f;
  CHECK_THROWS_AS(f.engine.add_device([](device_id) { throw resource_error{"no stream"}; }),
                  resource_error);
  for (int i = 0; i < 3; ++i) {
    f.submit();
    f.engine.run_until(f.engine.now() + 1ms);
  }
  f.engine.run_until(at(20ms));
  CHECK(f.ends.size() == 3);
  f.engine.inspect([&](const auto& loop) {
    CHECK(loop.core().health().is_present(f.device));
    CHECK_FALSE(loop.core().health().is_present(device_id{1}));
  });
  // Its id is free.
  CHECK(f.engine.add_device([&](device_id d) { f.backend.add_device(d); }) == device_id{1});
}
TEST_CASE("a model whose setup throws is not there") {
  fixture f;
  const model_config config{
      .scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 1s}};
  std::optional<model_id> told;
  const auto setup = [&](model_id id) {
    told = id;
    throw resource_error{"no memory"};
  };
  CHECK_THROWS_AS(f.engine.add_model(config, setup), resource_error);
  REQUIRE(told.has_value());
  CHECK_FALSE(f.engine.is_accepting(*told));
  CHECK(f.engine.add_model(config, [](model_id) {}) == *told);
}
TEST_CASE("what gone throws is counted, and the engine goes on") {
  fixture f;
  f.submit();
  f.engine.remove_model(f.model, [] { throw std::runtime_error{"not now"}; });
  f.engine.run_until(at(10ms));
  CHECK(f.ends == std::vector{fixture::done(1, 6ms)});
  f.engine.inspect([](const auto& loop) { CHECK(loop.failed_callbacks() == 1); });
}

TEST_CASE("a drain ends with the last request, or when its time is over, and says what is left") {
  fixture f;
  f.submit();
  f.engine.run_until(at(1ms));  // A batch of one, until 6 ms.
  f.submit();                   // Until 12 ms.
  CHECK(f.engine.drain_for(5ms - 1ns) == drain_report{.requests = 2});
  CHECK(f.engine.now() == at(6ms) - 1ns);
  f.submit();
  CHECK(f.refused == refusal::draining);
  CHECK(f.engine.drain_for(0ms) == drain_report{.requests = 2});
  CHECK(f.engine.now() == at(6ms) - 1ns);
  CHECK(f.engine.drain_for(1ns) == drain_report{.requests = 1});
  CHECK(f.ends == std::vector{fixture::done(1, 6ms)});
  CHECK(f.engine.drain_for(1h) == drain_report{});
  CHECK(f.engine.now() == at(12ms));  // And no later.
  CHECK(f.engine.drain_for(1h) == drain_report{});
}

TEST_CASE("a drain over a device that hangs ends in its time, and with the requests' ends") {
  using core = basic_engine_core<fixture::scheduler>;
  for (const bool gives_up : {false, true}) {
    CAPTURE(gives_up);
    std::deque<request> all(2);  // The engine goes before them: one has no end.
    profile_backend backend{
        reality{.noise = {}, .timers = {}, .faults = {{.at = 3ms, .device = device_id{0}}}}, 1};
    std::size_t failed = 0;
    std::size_t others = 0;
    const auto hear = [&](request&, outcome how) { ++(how == outcome::failed ? failed : others); };
    manual_engine engine{core{fixture::scheduler{}, 0ms, {}, {.is_on = gives_up, .floor = 10ms}},
                         backend, inline_completion{hear}};
    backend.bind(engine);
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    engine.add_device([&](device_id d) { backend.add_device(d); });
    const model_id m = engine.add_model({.scheduling = {.latency = l, .slo = 1s}},
                                        [&](model_id id) { backend.add_model(id, l); });
    for (request& r : all) {
      r.model = m;
      r.deadline = at(1s);
      REQUIRE_FALSE(engine.submit(r));
      engine.run_until(engine.now() + 1ms);
    }
    // The first is at work, and hangs: suspect at 3 · 6 ms + 10 ms, given up after four times that.
    CHECK(engine.drain_for(110ms - 1ns) == drain_report{.requests = 2});
    CHECK(engine.now() == at(112ms) - 1ns);
    CHECK(engine.drain_for(1ns) == (gives_up ? drain_report{.requests = 1, .hanging_devices = 1}
                                             : drain_report{.requests = 2}));
    CHECK(failed == (gives_up ? 1 : 0));
    // The other waits for a device, until its deadline; without health it does so, too.
    const drain_report left = engine.drain_for(10s);
    CHECK(left == (gives_up ? drain_report{.hanging_devices = 1} : drain_report{.requests = 1}));
    CHECK(others == 1);
    CHECK(engine.drain_for(unbounded) == left);  // Nothing will happen any more.
  }
}

TEST_CASE("an engine may end while a device is late with what was given up") {
  using core = basic_engine_core<fixture::scheduler>;
  request r;
  profile_backend backend{
      reality{.noise = {},
              .timers = {},
              .faults = {{.device = device_id{0}, .kind = fault_kind::slow, .factor = 1000}}},
      1};
  std::vector<outcome> ends;
  manual_engine engine{core{fixture::scheduler{}, 0ms, {}, {.is_on = true, .floor = 10ms}}, backend,
                       inline_completion{[&](request&, outcome how) { ends.push_back(how); }}};
  backend.bind(engine);
  const latency_curve l{linear_latency{5ms, 1ms}, 4};
  engine.add_device([&](device_id d) { backend.add_device(d); });
  r.model = engine.add_model({.scheduling = {.latency = l, .slo = 1s}},
                             [&](model_id id) { backend.add_model(id, l); });
  r.deadline = at(1s);
  REQUIRE_FALSE(engine.submit(r));
  CHECK(engine.drain_for(1s) == drain_report{.hanging_devices = 1});
  CHECK(ends == std::vector{outcome::failed});
}

}  // namespace
}  // namespace cohort::engine::manual_engine_test
