// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/device_service.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/model_lives.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace cohort::engine::device_service_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr deferred::pool_id pool{0};

/// A scheduler and a service that know the same device and model.
struct fixture {
  explicit fixture(const health_options& o = {.failures = 1, .window = 1}) : service{o} {
    device = scheduler.add_device(t0);
    service.add_device(device, 1, pool);
    models.add(model, {.pool = pool});
  }
  /// Sends it a batch that fails. @returns What is to be done.
  std::optional<health_event> fail(time_point now) {
    service.health().on_dispatch({device, 0}, now, 1ms);
    return service.health().on_complete({device, 0}, true, now);
  }
  [[nodiscard]] bool is_in_use() const { return scheduler.devices().is_in_service(device); }

  deferred::basic_scheduler<deferred::eager, deferred::head> scheduler;
  device_service service;
  model_lives models;
  device_id device;
  model_id model{0};
};

TEST_CASE("a device that fails is out for its scheduler and its pool until a probe succeeds") {
  fixture f;
  const auto event = f.fail(t0);
  REQUIRE(event);
  CHECK(f.service.take_out(*event, f.scheduler, t0));
  CHECK_FALSE(f.is_in_use());
  CHECK_FALSE(f.service.pools().has_device(pool));
  health_event again = *event;
  again.is_new = false;
  CHECK_FALSE(f.service.take_out(again, f.scheduler, t0));

  time_point now = f.service.health().next();
  REQUIRE(f.service.health().take_due(now));
  const auto with = f.service.begin_probe(f.device, f.models);
  CHECK(with == f.model);
  CHECK(f.service.probed_with(f.device) == f.model);
  CHECK(f.models[f.model].at_work == 1);  // It stays meanwhile.
  CHECK_FALSE(f.service.end_probe(f.device, true, f.scheduler, now));
  CHECK_FALSE(f.is_in_use());

  now = f.service.health().next();
  REQUIRE(f.service.health().take_due(now));
  CHECK(f.service.end_probe(f.device, false, f.scheduler, now));
  CHECK(f.is_in_use());
  CHECK(f.service.pools().has_device(pool));
}

TEST_CASE("a device is probed only with a model that stays") {
  fixture f;
  f.models.close(f.model);
  CHECK_FALSE(f.service.begin_probe(f.device, f.models).has_value());
  CHECK(f.models[f.model].at_work == 0);
}

TEST_CASE(
    "the id of a device that is removed while it is probed is free when the probe has ended") {
  fixture f;
  f.service.take_out(*f.fail(t0), f.scheduler, t0);
  const time_point now = f.service.health().next();
  REQUIRE(f.service.health().take_due(now));
  f.service.remove_device(f.device, f.scheduler, now);
  CHECK_FALSE(f.service.pools().has_device(pool));
  CHECK(f.scheduler.add_device(now) != f.device);
  CHECK_FALSE(f.service.end_probe(f.device, false, f.scheduler, now));
  CHECK(f.scheduler.add_device(now) == f.device);
}

TEST_CASE("requests are handed back where no device is in service, if that is asked for") {
  for (const bool asked : {false, true}) {
    fixture f{{.failures = 1, .window = 1, .hands_back = asked}};
    CHECK_FALSE(f.service.hands_back(pool));
    f.service.take_out(*f.fail(t0), f.scheduler, t0);
    CHECK(f.service.hands_back(pool) == asked);
  }
}

}  // namespace
}  // namespace cohort::engine::device_service_test
