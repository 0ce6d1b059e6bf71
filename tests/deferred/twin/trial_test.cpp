// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/trial.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/twin/trial_runner.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort::deferred::trial_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{100s};

const model_config slow_model{.latency = latency_curve{linear_latency{5ms, 1ms}, 8}, .slo = 30ms};

/// ℓ(b) = 5 ms + b ms, on one device; requests of 30 ms each `gap`.
tuning_job job_of(int requests, duration gap, std::uint32_t capacity = 1) {
  tuning_job j{network_delays{}};
  j.set_models({slow_model});
  j.start.now = t0;
  j.start.capacities = {capacity};
  j.start.slowness = {1};
  for (int i = 0; i < requests; ++i) {
    j.start.arrivals.push_back({t0 + i * gap, 30ms, model_id{0}});
  }
  return j;
}

struct log_sink {
  void dispatch(batch&& b) noexcept {
    sent = true;
    b.requests.clear();
  }
  void drop(request&) noexcept {}
  bool sent = false;
};

TEST_CASE("lone requests take what a batch of one takes, worked by hand") {
  tuning_job j = job_of(11, 100ms);
  j.start.unjudged = 1;
  j.tried = {{.window = window_kind::eager}, {.window = window_kind::deferred}};
  j.run();
  REQUIRE(j.results.size() == 2);
  CHECK(j.results[0].requests == 10);
  CHECK(j.results[0].bad == 0);
  CHECK(j.results[0].devices == 1);
  CHECK(j.results[0].latency == doctest::Approx(0.006));
  CHECK(j.results[1].latency == doctest::Approx(0.029));  // Sent at 30 − ℓ(2) = 23.
}

TEST_CASE("what cannot be served is bad, and counts as twice its deadline") {
  tuning_job j = job_of(3, 100ms);
  for (recorded_arrival& a : j.start.arrivals) a.slack = 5ms;
  j.tried = {{}};
  j.run();
  CHECK(j.results[0].bad == 1);
  CHECK(j.results[0].latency == doctest::Approx(0.010));
  CHECK(j.results[0].devices == 0);
}

TEST_CASE("the first arrivals fill queues and are not judged") {
  tuning_job j = job_of(10, 100ms);
  j.start.arrivals[0].slack = 5ms;
  j.start.unjudged = 4;
  j.tried = {{}};
  j.run();
  CHECK(j.results[0].requests == 6);
  CHECK(j.results[0].bad == 0);
}

TEST_CASE("it starts with what waits, and with devices as busy as they are, worked by hand") {
  tuning_job j = job_of(1, 100ms);
  j.tried = {{.window = window_kind::eager}};
  j.start.arrivals[0].at = t0 + 1ms;
  j.start.work = {10ms};
  j.run();
  CHECK(j.results[0].latency == doctest::Approx(0.015));  // From 10 to 16, arrived at 1.
  j.start.waiting = {{t0, 40ms, model_id{0}}, {t0, 40ms, model_id{0}}};
  j.run();
  CHECK(j.results[0].requests == 1);                      // Those that waited are not judged,
  CHECK(j.results[0].latency == doctest::Approx(0.017));  // but are in the same batch of three.
  j.start.work = {};
  j.run();
  CHECK(j.results[0].latency == doctest::Approx(0.012));  // Behind a batch of two, 0 to 7, to 13.
}

TEST_CASE("batches take what was learned of them, on slow devices longer") {
  tuning_job j = job_of(400, 100ms);
  j.tried = {{.window = window_kind::eager}};
  j.start.slowness = {1.5};
  j.run();
  CHECK(j.results[0].latency == doctest::Approx(0.009).epsilon(0.01));

  // A scheduler that has seen each batch take twice its profile.
  log_sink out;
  adaptive_scheduler live = make_adaptive_scheduler();
  live.add_device(t0);
  live.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 8}, .slo = 30ms});
  time_point now = t0;
  request r;
  for (int i = 0; i < 100; ++i) {
    r.deadline = now + 30ms;
    live.on_arrival(r, now, out);
    while (!out.sent) {
      live.advance(now, out);
      if (!out.sent) now = live.next_wake();
    }
    out.sent = false;
    r.state = request_state::idle;
    now += 12ms;
    live.on_complete(device_id{0}, now);
    now += 100ms;
    live.advance(now, out);
  }
  j.start.slowness = {1};
  j.known.assume(live, now);
  j.run();
  CHECK(j.results[0].latency == doctest::Approx(0.012).epsilon(0.02));
}

TEST_CASE("equal jobs give equal results, again and again") {
  tuning_job a = job_of(2000, 900us);
  tuning_job b = job_of(2000, 900us);
  a.tried = b.tried = {{}, {.window = window_kind::eager}, {.window = window_kind::reserved}};
  a.run();
  b.run();
  b.run();
  for (std::size_t i = 0; i < a.tried.size(); ++i) {
    CHECK(a.results[i].bad == b.results[i].bad);
    CHECK(a.results[i].latency == b.results[i].latency);
  }
}

TEST_CASE("a run that is stopped has no results, and the next is as if it had not been") {
  tuning_job a = job_of(500, 900us);
  tuning_job b = job_of(500, 900us);
  a.tried = b.tried = {{}, {.window = window_kind::eager}};
  a.run();
  std::atomic<bool> stop{true};
  b.run(&stop);
  CHECK(b.results.empty());
  stop = false;
  b.run(&stop);
  REQUIRE(b.results.size() == 2);
  CHECK(b.results[0].latency == a.results[0].latency);
  CHECK(b.results[1].latency == a.results[1].latency);
}

TEST_CASE("requests of models that are gone, and devices of any capacity, are no trouble") {
  tuning_job j = job_of(100, 2ms, 3);
  j.set_models({std::nullopt,
                model_config{.latency = latency_curve{linear_latency{1ms, 1ms}, 8}, .slo = 30ms}});
  j.start.arrivals.push_back({t0 + 1s, 30ms, model_id{1}});
  j.start.arrivals.push_back({t0 + 1s, 30ms, model_id{9}});
  j.tried = {{}};
  j.run();
  CHECK(j.results[0].requests == 1);
  CHECK(j.results[0].bad == 0);
  j.start.capacities.clear();  // No device at all: all are bad.
  j.start.slowness.clear();
  j.run();
  CHECK(j.results[0].bad == 1);
}

}  // namespace
}  // namespace cohort::deferred::trial_test
