// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/autoscaled.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cmath>

namespace cohort::sim::autoscaled_test {
namespace {
using namespace std::chrono_literals;

const auto make = [](const deferred::network_delays& d) { return deferred::scheduler{d}; };

/// Batches of b take 5 + b times `unit`, SLO 25 of it; for some minutes.
workload usual(duration measured, duration unit = 10ms) {
  workload w;
  w.models.push_back({.name = "m", .latency = linear_latency{5 * unit, unit}, .slo = 25 * unit});
  w.warmup = 10s;
  w.measured = measured;
  return w;
}

scaling_result play(const workload& w, double rate, const scaling_options& s) {
  return run_autoscaled(w, make, {.rate = rate, .seed = 3}, s, [](time_point) {});
}

TEST_CASE("a load that stays is served by the same devices, and hours are counted") {
  const scaling_result r = play(usual(120s), 200, {.devices = 4});
  REQUIRE(r.windows.size() == 13);
  for (const scaling_window& w : r.windows) CHECK(w.devices == 4);
  CHECK(r.device_hours == doctest::Approx(4 * 120 / 3600.0));
  CHECK(r.run.bad_rate < 0.01);
}

TEST_CASE("what is too few becomes enough after the delay, and what is too much is released") {
  const scaling_result few = play(usual(200s, 1ms), 6000, {.delay = 60s, .devices = 2});
  const std::uint32_t enough = few.windows.back().devices;
  CHECK(enough >= 8);
  CHECK(enough <= 10);
  for (const scaling_window& w : few.windows) {
    // The first window ends at 10 s.
    CHECK(w.devices == (w.end < time_point{70s} ? 2 : enough));
    CHECK(w.asked == enough);  // At once, and not again and again.
  }
  CHECK(few.windows.back().bad_rate < 0.02);

  const scaling_result many = play(usual(100s, 1ms), 6000, {.delay = 60s, .devices = 40});
  CHECK(many.windows[1].devices == 40);
  CHECK(many.windows[3].devices == enough);  // After three calm windows.
  CHECK(many.run.bad_rate < 0.01);
}

TEST_CASE("a load that rises by five percent a minute and falls again loses nearly nothing") {
  workload w = usual(1200s);
  std::vector<load_step> steps;
  for (int i = 0; i < 121; ++i) {
    const double minutes = i / 6.0;
    steps.push_back({10s * i, std::pow(1.05, minutes < 10 ? minutes : 20 - minutes)});
  }
  w.load = load_steps{std::move(steps)};
  const scaling_result r = play(w, 600, {.delay = 60s, .devices = 10});
  CHECK(r.run.bad_rate < 0.01);
  std::uint32_t most = 0;
  for (const scaling_window& x : r.windows) most = std::max(most, x.devices);
  CHECK(most > 12);                            // 1.63 times as many requests.
  CHECK(r.windows.back().devices < most - 2);  // And back.
}

TEST_CASE("never more than the limit, and never none") {
  const scaling_result r = play(usual(100s), 600, {.delay = 0s, .devices = 2, .limit = 5});
  for (const scaling_window& w : r.windows) CHECK(w.asked <= 5);
  CHECK(r.windows.back().devices == 5);
  const scaling_result idle = play(usual(60s), 0.1, {.devices = 3});
  CHECK(idle.windows.back().devices == 1);
  CHECK_THROWS_AS((void)play(usual(1s), 10, {.devices = 0}), config_error);
  CHECK_THROWS_AS((void)play(usual(1s), 10, {.devices = 9, .limit = 8}), config_error);
  CHECK_THROWS_AS((void)play(usual(1s), 10, {.delay = -1s}), config_error);
}

TEST_CASE("devices that are released with long batches keep their places until those end") {
  workload w;
  w.models.push_back(
      {.name = "m", .latency = linear_latency{60s, 1s}, .slo = 400s, .max_batch = 8});
  w.arrivals = arrival_process::gamma;
  w.shape = 0.05;
  w.warmup = 0s;
  w.measured = 20'000s;
  scaling_options s{.delay = 0s, .devices = 1, .limit = 2};
  s.advisor.calm_windows = 1;
  const scaling_result r = run_autoscaled(
      w,
      [](const deferred::network_delays& d) {
        return deferred::basic_scheduler<deferred::eager, deferred::head>{d};
      },
      {.rate = 0.05, .seed = 1}, s, [](time_point) {});
  CHECK(r.run.arrived > 500);
  CHECK(r.run.completed + r.run.late + r.run.dropped + r.run.refused == r.run.arrived);
  std::size_t changes = 0;
  for (std::size_t i = 1; i < r.windows.size(); ++i) {
    changes += r.windows[i].devices != r.windows[i - 1].devices;
    CHECK(r.windows[i].devices <= 2);
  }
  CHECK(changes > 50);
}

TEST_CASE("a load that has ended leaves one device") {
  workload w = usual(300s);
  w.load = load_steps{{{0s, 1}, {100s, 0}}};
  const scaling_result r = play(w, 600, {.devices = 9});
  REQUIRE(r.windows.size() == 31);
  CHECK(r.windows.back().devices == 1);
  CHECK(r.windows.back().rate_rps == 0);
  // Nine for 90 s, and for three calm windows; one for the other 170.
  CHECK(r.device_hours < (9 * 130 + 170 + 10) / 3600.0);
}

TEST_CASE("the last window is as short as it must be, and counts") {
  workload w = usual(5s);
  w.warmup = 0s;
  const scaling_result r = play(w, 3000, {.devices = 4});
  REQUIRE(r.windows.size() == 1);
  CHECK(r.windows[0].end == time_point{5s});
  CHECK(r.windows[0].rate_rps == doctest::Approx(3000).epsilon(0.02));
  CHECK(r.windows[0].bad_rate > 0.3);
  CHECK(play(usual(10s), 10, {.devices = 4}).windows.size() == 2);
}

TEST_CASE("a run is the same each time") {
  const scaling_result a = play(usual(60s), 600, {.devices = 4});
  const scaling_result b = play(usual(60s), 600, {.devices = 4});
  CHECK(a.device_hours == b.device_hours);
  CHECK(a.run.completed == b.run.completed);
}

}  // namespace
}  // namespace cohort::sim::autoscaled_test
