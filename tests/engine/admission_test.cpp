// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/admission.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "device_owner.hpp"

namespace cohort::engine::admission_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr deferred::pool_id pool{0};

struct nobody {
  void dispatch(deferred::batch&&) const noexcept {}
  void drop(request&) const noexcept {}
};

TEST_CASE("the first reason against a request is told, and no request that has none is refused") {
  using scheduler_type = deferred::basic_scheduler<deferred::eager, deferred::head>;
  scheduler_type scheduler;
  device_half devices{{.failures = 1, .window = 1, .hands_back = true}};
  model_lives models;
  admission<scheduler_type> door{{}, 0ms};
  const device_id d = scheduler.add_device(t0);
  devices.add_device(d, 1, pool);
  const model_config config{.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4},
                                           .slo = 20ms,
                                           .queue_capacity = 1},
                            .max_request_size = 3};
  const model_id m = scheduler.add_model(config.scheduling);
  models.add(m, {.max_request_size = 3, .pool = pool});
  door.add_model(m, 20ms, pool);
  std::deque<request> all(2);
  const auto why = [&](request& r) { return door.refuses(r, scheduler, models, devices, t0); };
  request& r = all[0];
  r.model = m;
  r.deadline = t0 + 20ms;
  CHECK_FALSE(why(r));

  // From the last reason to the first, each beside those before it.
  r.deadline = t0 + 6ms - 1ns;  // A batch of one takes 6 ms.
  CHECK(why(r) == refusal::deadline_infeasible);
  scheduler.set_in_service(d, false, t0);  // So that it waits.
  all[1].model = m;
  all[1].deadline = t0 + 20ms;
  nobody sink;
  scheduler.on_arrival(all[1], t0, sink);
  CHECK(why(r) == refusal::queue_full);
  deferred::batch failing{};
  failing.model = m;
  failing.device = d;
  test_support::noting_owner owner;
  owner.lives.add(m, {.pool = pool});
  devices.on_dispatch(std::move(failing), owner.lives);
  devices.on_complete({d, 0}, true, t0, owner);
  CHECK(why(r) == refusal::no_device);
  r.size = 4;
  CHECK(why(r) == refusal::too_big);
  models.close(m);
  CHECK(why(r) == refusal::unknown_model);
  r.model = model_id{7};
  CHECK(why(r) == refusal::unknown_model);
  door.drain();
  CHECK(door.is_draining());
  CHECK(why(r) == refusal::draining);
  CHECK(scheduler.on_cancel(all[1], t0, sink));
}

}  // namespace
}  // namespace cohort::engine::admission_test
