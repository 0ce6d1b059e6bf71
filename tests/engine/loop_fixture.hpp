// SPDX-License-Identifier: Apache-2.0
/// @file
/// A loop over an emulated device in virtual time.
#pragma once

#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/loop.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <chrono>
#include <utility>
#include <vector>

namespace cohort::engine::test_support {

/// One device, one model of l(b) = b + 5 ms and SLO 12 ms; eager, so that times are easy.
struct loop_fixture {
  using scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;
  struct handler {
    std::vector<std::pair<request*, outcome>>* into;
    void operator()(request& r, outcome how) const { into->emplace_back(&r, how); }
  };
  using loop_type =
      basic_loop<basic_engine_core<scheduler>, profile_backend, inline_completion<handler>>;

  explicit loop_fixture(std::uint32_t queue_capacity = 8) {
    using namespace std::chrono_literals;
    backend.bind(loop);
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    const device_id d = loop.add_device(now);
    backend.add_device(d);
    model =
        loop.add_model({.scheduling = {.latency = l, .slo = 12ms, .queue_capacity = queue_capacity},
                        .max_request_size = 10});
    backend.add_model(model, l);
  }
  /// Gives the request its model and deadline, and submits it now.
  std::optional<refusal> submit(request& r, duration slo = std::chrono::milliseconds{12}) {
    r.model = model;
    r.arrival = now;
    r.deadline = now + slo;
    return loop.submit(r, now);
  }
  /// Turns the loop at every instant it asks for, up to `until`.
  void run_until(time_point until) {
    for (time_point next = loop.turn(now); next <= until; next = loop.turn(now)) now = next;
    now = until;
    loop.turn(now);
  }

  std::vector<std::pair<request*, outcome>> ends;
  profile_backend backend;
  loop_type loop{basic_engine_core<scheduler>{}, backend, inline_completion<handler>{{&ends}}};
  time_point now{};
  model_id model;
};

}  // namespace cohort::engine::test_support
