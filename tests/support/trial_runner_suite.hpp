// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every `trial_runner` must do.
#pragma once

#include <cohort/deferred/twin/trial_runner.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <utility>

namespace cohort::deferred {

/// Two settings on so many requests, one a millisecond, for one device.
inline tuning_job trial_job(int requests) {
  using namespace std::chrono_literals;
  tuning_job j{network_delays{}};
  j.set_models({model_config{.latency = latency_curve{linear_latency{5ms, 1ms}, 8}, .slo = 30ms}});
  j.start.capacities = {1};
  j.start.slowness = {1};
  for (int i = 0; i < requests; ++i) {
    j.start.arrivals.push_back({time_point{} + i * 1ms, 30ms, model_id{0}});
  }
  j.tried = {{}, {.window = window_kind::eager}};
  return j;
}

/// `wait(runner)` returns when it is done.
template <trial_runner Runner, class Wait>
void check_trial_runner(Runner r, Wait wait) {
  tuning_job expected = trial_job(200);
  expected.run();
  CHECK(r.is_done());
  r.cancel();  // Of nothing.
  for (int i = 0; i < 20; ++i) {
    tuning_job j = trial_job(200);
    r.start(j);
    wait(r);
    REQUIRE(j.results.size() == 2);
    CHECK(j.results[0].latency == expected.results[0].latency);
    CHECK(j.cost >= duration{0});
  }
  for (int i = 0; i < 20; ++i) {  // Cancelled, whether or not it is done.
    tuning_job j = trial_job(1000);
    r.start(j);
    r.cancel();
    wait(r);
    CHECK((j.results.empty() || j.results.size() == 2));
    tuning_job next = trial_job(200);
    r.start(next);
    wait(r);
    CHECK(next.results.size() == 2);  // Not this one.
  }
  tuning_job j = trial_job(2000);  // Moved while at work.
  r.start(j);
  Runner moved{std::move(r)};
  wait(moved);
  CHECK(j.results.size() == 2);
  tuning_job last = trial_job(5000);  // And it may end while at work.
  Runner{std::move(moved)}.start(last);
}

}  // namespace cohort::deferred
