// SPDX-License-Identifier: Apache-2.0
// Random faults, load, cancellations, models and devices that come and go: each accepted request
// ends once, nothing is left, and counts agree. In virtual time.
#include <cohort/engine/manual_engine.hpp>

#include <doctest/doctest.h>

#include <cohort/core/reality.hpp>
#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/completion.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::engine {
namespace {
using namespace std::chrono_literals;

constexpr std::uint32_t most_devices = 6;

std::vector<fault> draw_faults(test::random_source& random) {
  std::vector<fault> out;
  for (std::uint32_t i = random.below(6U); i > 0; --i) {
    out.push_back({.at = 1ms * random.below(4000),
                   .device = device_id{random.below(most_devices)},
                   .kind = static_cast<fault_kind>(random.below(3)),
                   .lasts = random.one_in(3) ? unbounded : 1ms * (1 + random.below(3000)),
                   .factor = 1.0 + random.below(30)});
  }
  return out;
}

/// How often a request has ended. It carries the number of its life.
struct job : request {
  std::uint32_t accepted = 0;
  std::uint32_t ended = 0;
  outcome how = outcome::dropped;
};
struct deliver {
  void operator()(request& r, outcome how) const {
    auto& j = static_cast<job&>(r);
    ++j.ended;
    j.how = how;
  }
};

/// Some seconds of one seed. @returns How many requests ended in each way.
template <class Scheduler>
std::array<std::size_t, outcome_count> run(std::uint64_t seed, Scheduler scheduler) {
  test::random_source random{seed};
  profile_backend backend{reality{.noise = {.sigma = random.below(4) / 10.0,
                                            .straggler_share = random.below(3) / 100.0,
                                            .straggler_factor = 5},
                                  .timers = {},
                                  .faults = draw_faults(random)},
                          seed};
  using core = basic_engine_core<Scheduler>;
  manual_engine<core, profile_backend, inline_completion<deliver>> engine{
      core{std::move(scheduler),
           0s,
           {},
           {.floor = 1ms * (1 + random.below(50)), .first_probe = 20ms}},
      backend, inline_completion<deliver>{{}}};
  backend.bind(engine);
  const latency_curve curve{linear_latency{2ms, 300us}, 8};
  std::vector<model_id> models;
  std::vector<device_id> devices;
  const auto add_device = [&] {
    if (devices.size() == most_devices) return;
    devices.push_back(engine.add_device([&](device_id d) { backend.add_device(d); }));
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

  std::deque<job> jobs(200);
  const std::uint32_t burst = 1 + random.below(12U);
  for (int step = 0; step < 600; ++step) {
    engine.run_until(engine.now() + 100us * random.below(150));
    for (std::uint32_t i = random.below(burst); i > 0; --i) {
      job& j = jobs[random.below(jobs.size())];
      if (j.state != request_state::idle || j.in_engine) continue;
      REQUIRE(j.accepted == j.ended);
      j.model =
          random.one_in(20) ? model_id{random.below(8U)} : models[random.below(models.size())];
      j.arrival = engine.now();
      j.deadline = engine.now() + 1ms * random.below(600);
      if (!engine.submit(j)) ++j.accepted;
    }
    if (random.one_in(4)) engine.cancel(jobs[random.below(jobs.size())]);
    if (random.one_in(60)) add_device();
    if (random.one_in(60) && devices.size() > 1) {
      const std::size_t gone = random.below(devices.size());
      engine.remove_device(devices[gone]);
      devices.erase(devices.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    if (random.one_in(100)) add_model();
    if (random.one_in(100) && models.size() > 1) {
      const std::size_t gone = random.below(models.size());
      engine.remove_model(models[gone]);
      models.erase(models.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    // A backend that tells too much: of an entry and a device that nobody has. Of a probe that is
    // under way it can be told from the truth by nobody.
    if (random.one_in(40)) {
      engine.complete(device_entry{device_id{random.below(12U)}, 1 + random.below(3U)}, true);
      engine.complete_probe(device_id{20 + random.below(12U)}, random.one_in(2));
    }
  }
  // All deadlines are over, and what hangs has been given up: (3 · 4.4 + 50) · 4 ms, learned
  // longer.
  engine.run_until(engine.now() + 60s);
  // A probe may be under way, and a backend in virtual time cannot wait for its end.
  while (backend.next_event() != never) engine.run_until(backend.next_event());
  CHECK(engine.in_flight() == 0);
  for (const model_id m : models) CHECK(engine.waiting(m) == 0);
  std::array<std::size_t, outcome_count> ways{};
  for (const job& j : jobs) {
    CHECK(j.accepted == j.ended);
    CHECK(j.state == request_state::idle);
    if (j.ended > 0) ++ways[static_cast<std::size_t>(j.how)];
  }
  return ways;
}

TEST_CASE("each accepted request ends once, whatever devices do and whoever comes and goes") {
  std::array<std::size_t, outcome_count> all{};
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    const auto add = [&](const std::array<std::size_t, outcome_count>& ways) {
      for (std::size_t i = 0; i < ways.size(); ++i) all[i] += ways[i];
    };
    add(run(seed, deferred::scheduler{}));
    add(run(seed, deferred::make_adaptive_scheduler()));
  }
  for (const std::size_t n : all) CHECK(n > 100);  // All of them happen.
}

}  // namespace
}  // namespace cohort::engine
