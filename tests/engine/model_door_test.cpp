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

struct least_times {
  duration each{};
  [[nodiscard]] duration least_time(model_id) const { return each; }
};
struct in_service {
  [[nodiscard]] bool has_device(model_id id) const { return id == model_id{1}; }
};

TEST_CASE("doors let in whom their model takes, until it is closed") {
  CHECK_THROWS_AS(model_doors{0}, config_error);
  model_doors doors{2};
  doors.open(model_id{1}, 1, 10, 20ms, false, least_times{5ms});
  request r;
  r.deadline = t0 + 8ms;
  CHECK(doors.enter(r, t0) == refusal::unknown_model);  // Model 0 is not there.
  r.model = model_id{2};
  CHECK(doors.enter(r, t0) == refusal::unknown_model);
  r.model = model_id{1};
  CHECK_FALSE(doors.enter(r, t0));
  CHECK(doors.enter(r, t0) == refusal::queue_full);
  doors.launched(r.model, 1);
  CHECK(doors.waiting(r.model) == 0);
  doors.set_least_times(least_times{9ms});
  CHECK(doors.enter(r, t0) == refusal::deadline_infeasible);
  CHECK_FALSE(doors.has_device(r.model));
  doors.set_devices(in_service{});
  CHECK(doors.has_device(r.model));
  CHECK_FALSE(doors.has_device(model_id{0}));

  doors.open(model_id{0}, 1, 10, 20ms, true, least_times{});
  CHECK_THROWS_AS(doors.expect_room(), config_error);
  bool told = false;
  doors.close(r.model, [&] { told = true; });
  CHECK(doors.enter(r, t0) == refusal::unknown_model);
  CHECK_THROWS_AS(doors.expect_room(), config_error);
  doors.removed(r.model)();
  CHECK(told);
  CHECK_NOTHROW(doors.expect_room());
}

}  // namespace
}  // namespace cohort::engine::model_door_test
