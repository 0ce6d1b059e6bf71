// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/model_door.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::engine::model_door_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a door counts those that it lets in, and says why it lets others stand") {
  model_door d;
  d.capacity = 2;
  d.max_request_size = 10;
  d.least_time = 5ms;
  request r;
  r.deadline = t0 + 5ms;
  CHECK_FALSE(d.enter(r, t0));
  CHECK(d.enter(r, t0 + 1ns) == refusal::deadline_infeasible);
  r.size = 11;
  CHECK(d.enter(r, t0) == refusal::too_big);
  r.size = 10;
  CHECK_FALSE(d.enter(r, t0));
  CHECK(d.waiting == 2);
  CHECK(d.enter(r, t0) == refusal::queue_full);
  CHECK(d.waiting == 2);
  d.leave();
  CHECK_FALSE(d.enter(r, t0));
}

}  // namespace
}  // namespace cohort::engine::model_door_test
