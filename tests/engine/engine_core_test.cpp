// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/engine_core.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/pooled_scheduler.hpp>

#include <deque>
#include <map>
#include <set>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine::engine_core_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct recorder {
  std::vector<const deferred::batch*> launches;
  std::map<const request*, std::vector<outcome>> ends;
  std::vector<model_id> removed;
  void launch(const deferred::batch& b) noexcept { launches.push_back(&b); }
  void ended(request& r, outcome how) noexcept {
    CHECK(r.state == request_state::idle);
    ends[&r].push_back(how);
  }
  void model_removed(model_id m) noexcept { removed.push_back(m); }
};

/// l(b) = b + 5 ms, SLO 12 ms, one device, eager: a batch starts when the device is free.
struct fixture {
  using core_type = basic_engine_core<deferred::basic_scheduler<deferred::eager, deferred::head>>;
  fixture() {
    device = core.add_device(t0);
    model = core.add_model({.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4},
                                           .slo = 12ms,
                                           .queue_capacity = 3},
                            .max_request_size = 10});
  }
  ~fixture() {
    while (core.outstanding(device) > 0) core.on_complete(device, false, t0 + 1h, sink);
  }
  std::optional<refusal> submit(request& x, duration at, duration slo = 12ms) {
    x.model = model;
    x.arrival = t0 + at;
    x.deadline = t0 + at + slo;
    auto why = core.submit(x, t0 + at, sink);
    core.advance(t0 + at, sink);
    return why;
  }
  std::deque<request> r{std::deque<request>(12)};
  core_type core;
  recorder sink;
  device_id device;
  model_id model;
};

TEST_CASE("a request runs and completes in time, or late") {
  fixture f;
  CHECK_FALSE(f.submit(f.r[0], 0ms));
  REQUIRE(f.sink.launches.size() == 1);
  CHECK(f.core.in_flight() == 1);
  f.core.on_complete(f.device, false, t0 + 12ms, f.sink);  // At the deadline: in time.
  CHECK(f.sink.ends[&f.r[0]] == std::vector{outcome::completed});
  CHECK_FALSE(f.submit(f.r[1], 20ms));
  f.core.on_complete(f.device, false, t0 + 32ms + 1ns, f.sink);
  CHECK(f.sink.ends[&f.r[1]] == std::vector{outcome::late});
  CHECK(f.core.in_flight() == 0);
}
TEST_CASE("a failed batch fails its requests and the device goes on") {
  fixture f;
  CHECK_FALSE(f.submit(f.r[0], 0ms));
  f.core.on_complete(f.device, true, t0 + 1ms, f.sink);
  CHECK(f.sink.ends[&f.r[0]] == std::vector{outcome::failed});
  CHECK_FALSE(f.submit(f.r[1], 2ms));
  CHECK(f.sink.launches.size() == 2);
}
TEST_CASE("every refusal leaves the request as it was") {
  fixture f;
  const auto refused = [&](request& r, duration at, duration slo = 12ms) {
    const auto why = f.submit(r, at, slo);
    CHECK(r.state == request_state::idle);
    CHECK(r.sequence == 0);
    CHECK_FALSE(r.hook.is_linked());
    return why;
  };
  f.r[0].size = 11;
  CHECK(refused(f.r[0], 0ms) == refusal::too_big);
  CHECK(refused(f.r[1], 0ms, 6ms - 1ns) == refusal::deadline_infeasible);
  CHECK_FALSE(f.submit(f.r[2], 0ms));  // Runs; the next three wait.
  for (std::size_t i = 3; i < 6; ++i) CHECK_FALSE(f.submit(f.r[i], 0ms));
  CHECK(refused(f.r[6], 0ms) == refusal::queue_full);
  f.r[7].model = model_id{5};
  f.r[7].deadline = t0 + 1h;
  CHECK(f.core.submit(f.r[7], t0, f.sink) == refusal::unknown_model);
  f.core.drain();
  CHECK(refused(f.r[8], 0ms) == refusal::draining);
  CHECK(f.core.in_flight() == 4);
}
TEST_CASE("a waiting request is cancelled at once, one in a batch when its batch ends") {
  fixture f;
  CHECK_FALSE(f.submit(f.r[0], 0ms));
  CHECK_FALSE(f.submit(f.r[1], 0ms));
  f.core.cancel(f.r[1], t0 + 1ms, f.sink);
  CHECK(f.sink.ends[&f.r[1]] == std::vector{outcome::cancelled});
  f.core.cancel(f.r[0], t0 + 1ms, f.sink);
  CHECK_FALSE(f.sink.ends.contains(&f.r[0]));
  f.core.on_complete(f.device, false, t0 + 6ms, f.sink);
  CHECK(f.sink.ends[&f.r[0]] == std::vector{outcome::cancelled});
  f.core.cancel(f.r[0], t0 + 7ms, f.sink);  // It has ended: no effect.
  CHECK(f.sink.ends[&f.r[0]].size() == 1);
}
TEST_CASE("a model is removed when its last accepted request has ended") {
  fixture f;
  CHECK_FALSE(f.submit(f.r[0], 0ms));
  CHECK_FALSE(f.submit(f.r[1], 0ms));
  CHECK(f.core.remove_model(f.model, t0, f.sink));
  CHECK_FALSE(f.core.remove_model(f.model, t0, f.sink));
  CHECK(f.submit(f.r[2], 0ms) == refusal::unknown_model);
  f.core.on_complete(f.device, false, t0 + 6ms, f.sink);
  CHECK(f.sink.removed.empty());
  f.core.advance(t0 + 6ms, f.sink);
  f.core.on_complete(f.device, false, t0 + 12ms, f.sink);
  CHECK(f.sink.removed == std::vector{f.model});
  CHECK(f.sink.ends[&f.r[1]] == std::vector{outcome::completed});
}
TEST_CASE("the delay of the response counts against the deadline") {
  basic_engine_core<deferred::basic_scheduler<deferred::eager>> core{
      deferred::basic_scheduler<deferred::eager>{{.response = 2ms}}, 2ms};
  recorder sink;
  const device_id d = core.add_device(t0);
  request r;
  r.model = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms}});
  r.deadline = t0 + 12ms;
  CHECK_FALSE(core.submit(r, t0, sink));
  core.advance(t0, sink);
  core.on_complete(d, false, t0 + 10ms + 1ns, sink);
  CHECK(sink.ends[&r] == std::vector{outcome::late});
}

TEST_CASE("batches of a device of capacity 3 end in any order, each by its own name") {
  fixture::core_type core;
  recorder sink;
  const device_id d = core.add_device(t0, 3U);
  std::deque<request> r(3);
  const model_id m = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 1}, .slo = 18ms}});
  for (request& x : r) {
    x.model = m;
    x.deadline = t0 + 18ms;  // 3 ℓ(1): the latency of each if three share the device.
    REQUIRE_FALSE(core.submit(x, t0, sink));
    core.advance(t0, sink);
  }
  REQUIRE(sink.launches.size() == 3);
  CHECK(core.outstanding(d) == 3);
  CHECK(&core.running({d, 2}) == sink.launches[2]);
  CHECK(core.running({d, 2}).expected == 18ms);
  CHECK(core.running({d, 2}).work == 6ms);
  core.on_request_complete({d, 2}, r[2], false, t0 + 6ms, sink);
  CHECK(sink.ends[&r[2]] == std::vector{outcome::completed});
  core.on_complete({d, 1}, true, t0 + 7ms, sink);
  CHECK(sink.ends[&r[1]] == std::vector{outcome::failed});
  CHECK(sink.ends[&r[0]].empty());
  core.on_complete({d, 2}, false, t0 + 8ms, sink);
  CHECK(core.outstanding(d) == 1);
  core.on_complete(d, false, t0 + 18ms, sink);
  CHECK(sink.ends[&r[0]] == std::vector{outcome::completed});
  CHECK(core.in_flight() == 0);
}
TEST_CASE("what is admitted counts with the capacity of the devices") {
  fixture f;  // One device of capacity 1: 6 ms for one.
  CHECK_FALSE(f.submit(f.r[0], 0ms, 6ms));
  CHECK_THROWS_AS(f.core.add_device(t0, 3U), config_error);  // 18 ms are more than the SLO.
  CHECK_THROWS_AS(f.core.add_device(t0, 0U), config_error);
  f.core.add_device(t0, 2U);
  CHECK(f.submit(f.r[1], 0ms, 12ms - 1ns) == refusal::deadline_infeasible);
  CHECK_FALSE(f.submit(f.r[1], 0ms, 12ms));
  CHECK(f.sink.launches.back()->device == device_id{1});
  f.core.on_complete(device_id{1}, false, t0 + 6ms, f.sink);
}

/// One operation of the explorations below.
void apply(fixture& f, std::uint32_t operation, time_point& now) {
  if (operation < 3) {
    request& r = f.r[operation];
    if (r.state == request_state::idle && f.sink.ends[&r].empty()) {
      r.model = f.model;
      r.deadline = now + 12ms;
      REQUIRE_FALSE(f.core.submit(r, now, f.sink));
    }
  } else if (operation < 6) {
    f.core.cancel(f.r[operation - 3], now, f.sink);
  } else if (operation < 8) {
    if (f.core.outstanding(f.device) > 0) {
      f.core.on_complete(f.device, operation == 7, now, f.sink);
    }
  } else {
    now += 3ms;
  }
  f.core.advance(now, f.sink);
}

/// Also asked for probes.
/// Counts what is told once more.
struct stray_counter : null_observer {
  int* into;
  void stray_end() const noexcept { ++*into; }
};

TEST_CASE("what is told of a batch once more is counted, whatever its entry has by then") {
  using scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;
  int strays = 0;
  basic_engine_core<scheduler, stray_counter> core{scheduler{{.wake_margin = 2ms}}, 0s,
                                                   stray_counter{{}, &strays}};
  core.send_ahead(true);
  const device_id device = core.add_device(t0);
  const model_id model = core.add_model(
      {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 1s},
       .is_repeatable = true});
  recorder sink;
  std::deque<request> r(2);
  const auto submit = [&](request& x, time_point now) {
    x.model = model;
    x.deadline = now + 1s;
    REQUIRE_FALSE(core.submit(x, now, sink));
    core.advance(now, sink);
  };
  submit(r[0], t0);
  core.advance(t0 + 2ms, sink);
  submit(r[1], t0 + 5ms);
  REQUIRE(sink.launches.size() == 2);
  const batch_ticket first = sink.launches[0]->at();
  const batch_ticket second = sink.launches[1]->at();
  CHECK(first.number != second.number);

  core.on_request_complete(second, r[0], false, t0 + 5ms, sink);  // It is not in that batch.
  CHECK(strays == 1);
  // Out of turn: its request ends, and its place is free with that of the one before.
  core.on_complete(second, false, t0 + 5ms, sink);
  core.on_complete(second, true, t0 + 5ms, sink);
  CHECK(strays == 2);
  CHECK(sink.ends[&r[1]] == std::vector{outcome::completed});
  CHECK(core.outstanding(device) == 2);
  core.on_complete(first, false, t0 + 6ms, sink);
  CHECK(core.outstanding(device) == 0);
  CHECK(sink.ends[&r[0]] == std::vector{outcome::completed});

  // A request that runs again: what is told of its earlier batch does not end it.
  submit(r[0], t0 + 10ms);
  REQUIRE(sink.launches.size() == 3);
  core.on_request_complete(first, r[0], false, t0 + 11ms, sink);
  core.on_complete(first, false, t0 + 11ms, sink);
  core.on_complete({device, 0, 77}, false, t0 + 11ms, sink);
  CHECK(strays == 5);
  CHECK(core.in_flight() == 1);
  core.on_complete(device, false, t0 + 16ms, sink);  // By the entry alone.
  CHECK(core.in_flight() == 0);
  CHECK(core.stray_ends() == 5);
}

struct probing_recorder : recorder {
  struct probe_order {
    device_id device;
    model_id model;
    friend bool operator==(const probe_order&, const probe_order&) = default;
  };
  std::vector<probe_order> probes;
  void probe(device_id d, model_id m) noexcept { probes.push_back({d, m}); }
};

TEST_CASE("a device is probed with a model of its pool, which stays until the probe has ended") {
  using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
  basic_engine_core<scheduler> core{scheduler{}, 0s, {}, {.failures = 1, .window = 1}};
  probing_recorder sink;
  constexpr deferred::pool_id other{0};
  constexpr deferred::pool_id pool{1};
  const model_config served{.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4},
                                           .slo = 1s,
                                           .queue_capacity = 3}};
  core.add_model(served, other);
  const device_id device = core.add_device(t0, pool);
  const model_id first = core.add_model(served, pool);
  const model_id second = core.add_model(served, pool);
  request r;
  r.model = second;
  r.deadline = t0 + 1s;
  REQUIRE_FALSE(core.submit(r, t0, sink));
  core.advance(t0, sink);
  core.on_complete({device, 0}, true, t0 + 5ms, sink);
  CHECK(core.health().state(device) == device_state::quarantined);

  // Probes follow after 100 and 200 ms.
  core.advance(t0 + 105ms, sink);
  REQUIRE(sink.probes.size() == 1);
  CHECK(sink.probes[0] == probing_recorder::probe_order{device, first});
  CHECK(core.remove_model(first, t0 + 106ms, sink));
  CHECK(sink.removed.empty());
  CHECK(core.remove_model(model_id{0}, t0 + 106ms, sink));  // No probe is of it.
  CHECK(sink.removed.size() == 1);
  core.on_probe(device, true, t0 + 110ms, sink);
  CHECK(sink.removed == std::vector{model_id{0}, first});
  core.advance(t0 + 310ms, sink);
  REQUIRE(sink.probes.size() == 2);
  CHECK(sink.probes[1] == probing_recorder::probe_order{device, second});
  core.on_probe(device, true, t0 + 320ms, sink);

  // Without a model there is no probe.
  CHECK(core.remove_model(second, t0 + 330ms, sink));
  CHECK(sink.removed.size() == 3);
  core.advance(t0 + 720ms, sink);
  CHECK(sink.probes.size() == 2);
  CHECK(core.health().state(device) == device_state::healthy);
}

TEST_CASE("every interleaving of a few operations ends each request exactly once") {
  // Submit a, b, c; cancel a, b, c; complete; fail; let time pass: all sequences of five.
  constexpr std::uint32_t kinds = 9;
  std::uint32_t sequences = 1;
  for (int i = 0; i < 5; ++i) sequences *= kinds;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    fixture f;
    time_point now = t0;
    std::uint32_t rest = s;
    for (int i = 0; i < 5; ++i, rest /= kinds) apply(f, rest % kinds, now);
    std::size_t accepted = 0;
    std::size_t ended = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      accepted += f.r[i].sequence > 0;
      ended += f.sink.ends[&f.r[i]].size();
    }
    REQUIRE(f.core.in_flight() == accepted - ended);
    while (f.core.outstanding(f.device) > 0 || f.core.next_wake() != never) {
      if (f.core.outstanding(f.device) > 0) {
        f.core.on_complete(f.device, false, now += 1ms, f.sink);
      } else {
        now = std::max(now, f.core.next_wake());
      }
      f.core.advance(now, f.sink);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      REQUIRE(f.sink.ends[&f.r[i]].size() == (f.r[i].sequence > 0 ? 1 : 0));
    }
    REQUIRE(f.core.in_flight() == 0);
  }
}
}  // namespace
}  // namespace cohort::engine::engine_core_test
