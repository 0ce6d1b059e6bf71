// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/learned_state.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <array>
#include <chrono>

namespace cohort::deferred::learned_state_test {
namespace {
using namespace std::chrono_literals;

template <class Scheduler>
void check_copy(Scheduler s, bool learns) {
  s.add_device(time_point{});
  s.remove_device(s.add_device(time_point{}), time_point{});
  s.add_device(time_point{}, 1);
  const std::array ids{
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 50ms})};
  const learned_state known = copy_learned(s, ids);
  REQUIRE(known.models.size() == 1);
  CHECK(known.models[0].learned.count() == 0);
  CHECK(known.models[0].in_use == doctest::Approx(1));
  REQUIRE(known.devices.size() == 2);
  CHECK(known.devices[0].id == device_id{0});
  CHECK(known.devices[0].factor == 1);
  CHECK(known.delays.response == 2ms);
  CHECK(known.learns == learns);
}

TEST_CASE("what was measured is copied from any scheduler, and who is there") {
  const network_delays delays{.response = 2ms};
  check_copy(scheduler{delays}, false);
  check_copy(make_adaptive_scheduler(delays), true);
  check_copy(tuned_scheduler{delays}, true);
}

}  // namespace
}  // namespace cohort::deferred::learned_state_test
