// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/trial_runner.hpp>

#include <doctest/doctest.h>

#include <support/trial_runner_suite.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort::deferred::trial_runner_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("inline trials are done when they have started") {
  check_trial_runner(inline_trials{}, [](const inline_trials&) {});
}

TEST_CASE("sliced trials go on a little at each call") {
  time_point now{};
  check_trial_runner(sliced_trials{}, [&](sliced_trials& r) {
    while (!r.is_done()) r.work(now += 1ms);
  });
  tuning_job j = trial_job(2000);
  sliced_trials r;
  r.start(j);
  r.work(now);
  r.work(now += 1h);  // Not all at once, however long nobody called.
  CHECK_FALSE(r.is_done());
  int calls = 0;
  for (; !r.is_done(); ++calls) r.work(now += 100us);  // Five instants' worth.
  CHECK(calls > 500);
  CHECK(j.results.size() == 2);
}

TEST_CASE("a job knows the models that are there, under their ids") {
  tuning_job j{network_delays{}};
  const model_config c{.latency = latency_curve{linear_latency{5ms, 1ms}, 8}, .slo = 30ms};
  j.set_models({std::nullopt, c, std::nullopt, c});
  for (std::uint32_t i = 0; i < 4; ++i) {
    CHECK(j.known.models().is_served(model_id{i}) == (i % 2 == 1));
  }
  j.set_models({c});
  CHECK(j.known.models().is_served(model_id{0}));
  CHECK_FALSE(j.known.models().is_served(model_id{1}));
}

}  // namespace
}  // namespace cohort::deferred::trial_runner_test
