// SPDX-License-Identifier: Apache-2.0
// Random faults, load that rises tenfold, cancellations, models and devices that come and go,
// launches that throw, ends that are told twice: each accepted request ends once, nothing is left,
// counts agree, and devices that are well serve. In virtual time.
#include <cohort/engine/manual_engine.hpp>

#include <doctest/doctest.h>

#include <cohort/core/reality.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

#include "chaos_fixture.hpp"

namespace cohort::engine::chaos_test {
namespace {
using namespace std::chrono_literals;

constexpr std::uint32_t most_devices = 6;

using job = request;
using deliver = test_support::end_in_ledger<job>;
using test_support::totals;

/// Some seconds of one seed.
template <class Scheduler>
void run(std::uint64_t seed, Scheduler scheduler, totals& all) {
  test::random_source random{seed};
  const std::vector<fault> faults = test_support::draw_faults(
      random, {.devices = most_devices, .latest_ms = 4000, .longest_ms = 3000});
  test_support::ledger<job> jobs;  // Outlive what the engine has of them.
  using backend_type = test_support::throwing_at_times<profile_backend>;
  backend_type backend{reality{.noise = {.sigma = random.below(4) / 10.0,
                                         .straggler_share = random.below(3) / 100.0,
                                         .straggler_factor = 5},
                               .timers = {},
                               .faults = faults},
                       seed};
  backend.random = &random;
  backend.one_in = random.one_in(2) ? 5 + random.below(100U) : 0;
  using core = basic_engine_core<Scheduler>;
  using engine_type = manual_engine<core, backend_type, inline_completion<deliver>>;
  engine_type engine{
      core{std::move(scheduler),
           0s,
           {},
           {.floor = 1ms * (1 + random.below(50)), .first_probe = 20ms, .longest_probe = 1s}},
      backend, inline_completion<deliver>{{&jobs}}};
  test_support::echo echo{engine, random, random.one_in(2) ? 1 + random.below(30U) : 0};
  backend.bind(echo);
  const latency_curve curve{linear_latency{2ms, 300us}, 8};
  std::vector<model_id> models;
  std::vector<device_id> devices;
  const auto add_device = [&] {
    if (devices.size() == most_devices) return;
    const std::uint32_t capacity = 1 + random.below(2U);
    devices.push_back(engine.add_device(
        [&](device_id d) { backend.add_device(d, {.capacity = capacity}); }, capacity));
  };
  const auto add_model = [&] {
    models.push_back(engine.add_model({.scheduling = {.latency = curve,
                                                      .slo = 1ms * (10 + random.below(500)),
                                                      .queue_capacity = 1 + random.below(50U)},
                                       .is_repeatable = random.one_in(2)},
                                      [&](model_id id) { backend.add_model(id, curve); }));
  };
  for (std::uint32_t i = 1 + random.below(3U); i > 0; --i) add_device();
  for (std::uint32_t i = 1 + random.below(3U); i > 0; --i) add_model();

  const std::uint32_t burst = 1 + random.below(12U);
  const std::uint32_t flood = random.below(1200U);  // From then on for a while, or never.
  for (std::uint32_t step = 0; step < 600; ++step) {
    engine.run_until(engine.now() + 100us * random.below(150));
    const std::uint32_t times = step >= flood && step < flood + 60 ? 10 : 1;
    for (std::uint32_t i = random.below(burst) * times; i > 0; --i) {
      if (random.below(400U) < jobs.open.live().size()) continue;
      job& j = jobs.add();
      j.model =
          random.one_in(20) ? model_id{random.below(8U)} : models[random.below(models.size())];
      j.arrival = engine.now();
      j.deadline = engine.now() + 1ms * random.below(600);
      if (engine.submit(j)) {
        jobs.take_back(j);
      } else {
        ++jobs.accepted;
      }
    }
    if (job* const j = jobs.any(random); j != nullptr && random.one_in(4)) engine.cancel(*j);
    if (random.one_in(60)) add_device();
    if (random.one_in(60) && devices.size() > 1) {
      engine.remove_device(test_support::take_any(random, devices));
    }
    if (random.one_in(100)) add_model();
    if (random.one_in(100) && models.size() > 1) {
      engine.remove_model(test_support::take_any(random, models));
    }
    // A backend that tells too much: of an entry and a device that nobody has, of a batch that
    // nobody was given. Of a probe that is under way it can be told from the truth by nobody.
    if (random.one_in(40)) {
      engine.complete(device_entry{device_id{random.below(12U)}, 2 + random.below(3U)}, true);
      engine.complete({device_id{random.below(12U)}, 0, UINT64_MAX - step}, random.one_in(2));
      engine.complete_probe(device_id{20 + random.below(12U)}, random.one_in(2));
      echo.strays += 3;
    }
    if (random.one_in(20)) engine.inspect([&](const auto& loop) { echo.repeat(loop.core()); });
  }
  // All deadlines are over, and what hangs has been given up: (3 · 4.4 + 50) · 4 ms, learned
  // longer.
  engine.run_until(engine.now() + 60s);
  // A probe may be under way, and a backend in virtual time cannot wait for its end.
  while (backend.next_event() != never) engine.run_until(backend.next_event());
  CHECK(engine.in_flight() == 0);
  for (const model_id m : models) CHECK(engine.waiting(m) == 0);
  all.check_requests(jobs);
  bool are_all_well = false;
  engine.inspect([&](const auto& loop) {
    are_all_well = all.check_devices(loop.core(), echo, devices, [&](device_id d) {
      return test_support::is_well_for_long(faults, d, engine.now());
    });
  });
  backend.one_in = 0;
  if (are_all_well) {
    job& last = jobs.add();
    last.model = models.front();
    last.arrival = engine.now();
    last.deadline = engine.now() + 60s;
    CHECK_FALSE(engine.submit(last));
    engine.run_until(engine.now() + 120s);  // It starts as late as it may, and may end late.
    const std::optional<outcome> how = jobs.how.back();
    CHECK((how == outcome::completed || how == outcome::late));
  }
  all.add(backend, echo);
}

TEST_CASE("each accepted request ends once, whatever devices do and whoever comes and goes") {
  totals all;
  for (std::uint64_t seed = 1; seed <= test::seeds(1000); ++seed) {
    CAPTURE(seed);
    // Half of them send batches ahead.
    const deferred::network_delays delays{.wake_margin = seed % 2 * 1ms};
    run(seed, deferred::scheduler{delays}, all);
    run(seed, deferred::make_adaptive_scheduler(delays), all);
  }
  // All of it happens.
  for (const std::size_t n : all.ways) CHECK(n > test::at_least(100));
  all.check_all_happened();
}

}  // namespace
}  // namespace cohort::engine::chaos_test
