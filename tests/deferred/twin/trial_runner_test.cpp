// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/trial_runner.hpp>

#include <doctest/doctest.h>

#include <support/trial_runner_suite.hpp>

namespace cohort::deferred {
namespace {

TEST_CASE("inline trials are done when they have started") {
  check_trial_runner(inline_trials{}, [](const inline_trials&) {});
}

TEST_CASE("a job knows the models that are there, under their ids") {
  tuning_job j{network_delays{}};
  const model_config c{.latency = latency_curve{linear_latency{std::chrono::milliseconds{5},
                                                               std::chrono::milliseconds{1}},
                                                8},
                       .slo = std::chrono::milliseconds{30}};
  j.add_model(model_id{0}, c);
  j.add_model(model_id{1}, c);
  j.remove_model(model_id{0});
  CHECK_FALSE(j.start.models[0]);
  CHECK(j.start.models[1]);
  CHECK_FALSE(j.known.models().is_served(model_id{0}));
  j.add_model(model_id{0}, c);
  CHECK(j.known.models().is_served(model_id{0}));
}

}  // namespace
}  // namespace cohort::deferred
