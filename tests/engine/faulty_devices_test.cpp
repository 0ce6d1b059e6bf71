// SPDX-License-Identifier: Apache-2.0
// What becomes of requests where devices hang or fail: engines in virtual time.
#include <cohort/engine/manual_engine.hpp>

#include <doctest/doctest.h>

#include <cohort/core/reality.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

namespace cohort::engine::faulty_devices_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(duration since) { return time_point{} + since; }

/// Devices with faults, and one model of l(b) = b + 5 ms; eager.
struct fixture {
  using scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;
  struct handler {
    std::deque<std::pair<request*, outcome>>* into;
    void operator()(request& r, outcome how) const { into->emplace_back(&r, how); }
  };
  using engine_type =
      manual_engine<basic_engine_core<scheduler>, profile_backend, inline_completion<handler>>;

  fixture(std::vector<fault> faults, std::uint32_t devices, bool is_repeatable)
      : backend{reality{.noise = {}, .timers = {}, .faults = std::move(faults)}} {
    backend.bind(engine);
    for (std::uint32_t i = 0; i < devices; ++i) {
      engine.add_device([&](device_id d) { backend.add_device(d); });
    }
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    model = engine.add_model({.scheduling = {.latency = l, .slo = 1s, .queue_capacity = 64},
                              .is_repeatable = is_repeatable},
                             [&](model_id id) { backend.add_model(id, l); });
  }
  request& submit(duration slo = 1s) {
    request& r = requests.emplace_back();
    r.model = model;
    r.arrival = engine.now();
    r.deadline = engine.now() + slo;
    REQUIRE_FALSE(engine.submit(r));
    return r;
  }
  [[nodiscard]] std::size_t count(outcome how) const {
    return static_cast<std::size_t>(
        std::ranges::count(ends, how, [](const auto& e) { return e.second; }));
  }

  std::deque<request> requests;
  std::deque<std::pair<request*, outcome>> ends;
  profile_backend backend;
  engine_type engine{basic_engine_core<scheduler>{scheduler{}, 0s, {}, {.floor = 50ms}}, backend,
                     inline_completion<handler>{{&ends}}};
  model_id model;
};

TEST_CASE("a request on which a device hangs fails, and is not tried on another") {
  for (const bool is_repeatable : {true, false}) {
    fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang}}, 2, is_repeatable};
    const request& r = f.submit();
    // 4 · (3 · 6 + 50) = 272 ms.
    f.engine.run_until(at(271ms));
    CHECK(f.ends.empty());
    f.engine.run_until(at(272ms));
    CHECK(f.count(outcome::failed) == 1);
    CHECK(r.attempts == 0);
    CHECK(f.engine.in_flight() == 0);
    CHECK(f.engine.waiting(f.model) == 0);
    // The device gets nothing more.
    for (int i = 0; i < 50; ++i) {
      f.submit();
      f.engine.run_until(f.engine.now() + 20ms);
    }
    CHECK(f.ends.size() == 51);
    CHECK(f.count(outcome::failed) == 1);
  }
}

TEST_CASE(
    "one device that hangs: requests end, and it is back when it has let go and a probe succeeds") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 5s}}, 1, true};
  f.submit(300ms);
  f.engine.run_until(at(272ms));
  CHECK(f.engine.waiting(f.model) == 0);
  CHECK(f.count(outcome::failed) == 1);
  f.engine.run_until(at(300ms));
  f.submit(300ms);
  f.engine.run_until(at(2s));
  CHECK(f.count(outcome::dropped) == 1);
  // The batch ends at 5.006 s, and the probe 6 ms later.
  f.engine.run_until(at(5005ms));
  f.submit();
  f.engine.run_until(at(5012ms));
  CHECK(f.ends.size() == 2);
  f.engine.run_until(at(5018ms));
  CHECK(f.count(outcome::completed) == 1);
}

TEST_CASE("of two devices the one that fails takes k batches, and no repeatable request fails") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::fail, .lasts = 10s}}, 2, true};
  // More than one device can do at a time: the other gets some, too.
  for (int i = 0; i < 1000; ++i) {
    f.submit();
    f.submit();
    f.engine.run_until(f.engine.now() + 5ms);
  }
  f.engine.run_until(f.engine.now() + 1s);
  CHECK(f.count(outcome::completed) == 2000);
  // Probes at .1, .3, .7, 1.5, 3.1 and 6.3 s failed, the one at 12.7 s did not.
  f.engine.run_until(at(16s));
  const std::size_t before = f.ends.size();
  for (int i = 0; i < 200; ++i) {
    f.submit();
    f.submit();
    f.engine.run_until(f.engine.now() + 4ms);  // More than one device can do.
  }
  f.engine.run_until(f.engine.now() + 1s);
  CHECK(f.ends.size() == before + 400);
  CHECK(f.count(outcome::completed) == 2400);
}

TEST_CASE(
    "requests that are not repeatable fail with the batches that a device takes before it is out") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::fail}}, 2, false};
  for (int i = 0; i < 500; ++i) {
    f.submit();
    f.engine.run_until(f.engine.now() + 3ms);
  }
  f.engine.run_until(f.engine.now() + 1s);
  CHECK(f.count(outcome::failed) <= 12);  // Three batches of up to four.
  CHECK(f.count(outcome::failed) >= 3);
  CHECK(f.ends.size() == 500);
}

TEST_CASE(
    "a model that is removed while a device hangs is gone when that has let go of its batch") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang, .lasts = 2s}}, 1, false};
  f.submit();
  bool is_gone = false;
  f.engine.remove_model(f.model, [&] { is_gone = true; });
  f.engine.run_until(at(1s));
  CHECK(f.count(outcome::failed) == 1);
  CHECK(f.engine.in_flight() == 0);
  CHECK_FALSE(is_gone);  // Its buffers may still be written to.
  f.engine.run_until(at(3s));
  CHECK(is_gone);
}

TEST_CASE("a device that is removed while it hangs lets its requests go") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang}}, 1, false};
  f.submit();
  f.engine.run_until(at(10ms));
  f.engine.remove_device(device_id{0});
  f.engine.run_until(at(272ms));
  CHECK(f.count(outcome::failed) == 1);
}

TEST_CASE(
    "a request that is cancelled in a batch that hangs ends cancelled, and is not tried again") {
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::hang}}, 2, true};
  request& r = f.submit();
  f.engine.run_until(at(10ms));
  f.engine.cancel(r);
  f.engine.run_until(at(300ms));
  CHECK(f.count(outcome::cancelled) == 1);
}

TEST_CASE("what is tried again too often fails") {
  // Both fail at once: the second one shows that it is the request's fault.
  fixture f{{{.at = 0s, .device = device_id{0}, .kind = fault_kind::fail},
             {.at = 0s, .device = device_id{1}, .kind = fault_kind::fail}},
            2,
            true};
  request& r = f.submit();
  f.engine.run_until(at(1ms));
  CHECK(f.count(outcome::failed) == 1);
  CHECK(r.attempts == 1);
  CHECK(f.engine.waiting(f.model) == 0);
}

TEST_CASE("ends of batches that there are none of change nothing") {
  fixture f{{}, 1, false};
  f.engine.complete(device_entry{device_id{0}, 0}, false);
  f.engine.complete(device_entry{device_id{0}, 7}, false);
  f.engine.complete(device_entry{device_id{9}, 0}, true);
  f.engine.complete_request(device_entry{device_id{0}, 0}, request{}, false);
  f.engine.complete_probe(device_id{0}, false);
  f.engine.complete_probe(device_id{9}, true);
  f.engine.run_until(at(1ms));
  f.submit();
  f.engine.run_until(at(10ms));
  CHECK(f.count(outcome::completed) == 1);
}

}  // namespace
}  // namespace cohort::engine::faulty_devices_test
