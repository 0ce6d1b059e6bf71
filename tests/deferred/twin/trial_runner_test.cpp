// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/trial_runner.hpp>

#include <doctest/doctest.h>

#include <support/trial_runner_suite.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort::deferred::trial_runner_test {
namespace {

TEST_CASE("inline trials are done when they have started") {
  check_trial_runner(inline_trials{}, [](const inline_trials&) {});
}

TEST_CASE("a job knows the models that are there, under their ids") {
  using namespace std::chrono_literals;
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
