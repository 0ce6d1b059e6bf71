// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/rivals/rival_simulation.hpp>

#include <doctest/doctest.h>

#include <cohort/sim/rivals/clockwork.hpp>
#include <cohort/sim/rivals/nexus.hpp>
#include <cohort/sim/rivals/shepherd.hpp>

#include <support/random_source.hpp>
#include "rival_cases.hpp"

namespace cohort::sim::rival_simulation_test {
namespace {
using namespace rival_cases;

TEST_CASE("rivals are told of delays, and allow for them") {
  workload w = trace_of(1, {usual_model()}, {{0, 0}});
  w.network = {.control = 2ms, .data_per_request = 1ms, .response = 4ms};
  w.response_margin = 3ms;
  const rival_facts f = facts_of(w, 5);
  CHECK(f.after == 3ms);
  CHECK(f.models[0].slo == 17ms);
  CHECK(f.models[0].run(2) == 7ms);
  CHECK(f.models[0].sent(2) == 11ms);
  CHECK(f.models[0].rate == 1);  // Of a trace what comes in its second.
  w.arrivals = arrival_process::poisson;
  CHECK(facts_of(w, 5).models[0].rate == 5);
  // Starts after 3 ms, ends at 9, and is told of at 13.
  w.arrivals = arrival_process::trace;
  const auto make = [](const rival_facts& told) { return clockwork{told, 0ms}; };
  CHECK(played(w, make) == "0:m x1 3-9, 0 dropped, 0 late");
  w.models[0].slo = 12ms;  // It is told of 3 ms of 4: late by one.
  CHECK(played(w, make) == "0:m x1 3-9, 0 dropped, 1 late");
  w.response_margin = 4ms;
  CHECK(played(w, make) == "1 dropped, 0 late");
}

/// One to five models on one to six devices, some delays, some noise.
workload random_workload(test::random_source& random) {
  workload w;
  w.devices = 1 + random.below(6U);
  for (std::uint32_t m = 0; m <= random.below(5U); ++m) {
    const duration fixed{100us * (1 + random.below(80U))};
    const duration each{10us * (1 + random.below(200U))};
    w.models.push_back({.name = fmt::format("m{}", m),
                        .latency = linear_latency{fixed, each},
                        .slo = (fixed + each) * (1 + random.below(6U)) + 1ms,
                        .share = 1.0 + random.below(9U)});
  }
  if (random.one_in(3)) w.network = {.control = 100us, .data_per_request = 10us};
  if (random.one_in(3)) w.network.response = 300us;
  if (random.one_in(2)) w.reality.noise.sigma = 0.2;
  w.warmup = 100ms;
  w.measured = 1s;
  return w;
}

/// No request is lost or served twice, no device runs two batches at one time, and without noise or
/// a delay of results nobody is late.
template <class Make>
void check_runs(Make make) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const workload w = random_workload(random);
    const double rate = 20.0 + random.below(4000U);
    const run_result r = simulate_rival(
        w, make, {.rate = rate, .seed = seed, .record_dispatches = true}, [](time_point) {});
    CHECK(r.completed + r.late + r.dropped == r.arrived);
    if (w.reality.noise.sigma == 0) CHECK(r.late == 0);
    const time_point begin = time_point{} + w.warmup;
    duration busy{0};
    std::vector<time_point> free_at(w.devices, time_point{});
    std::vector<dispatch_record> all = r.dispatches;
    std::ranges::sort(all, {},
                      [](const dispatch_record& d) { return std::pair{d.exec_at, d.finish}; });
    for (const dispatch_record& d : all) {
      if (d.finish < d.exec_at) continue;  // Stopped before it began.
      CHECK(d.exec_at >= free_at[d.device]);
      free_at[d.device] = d.finish;
      busy += std::max(duration{0},
                       std::min(d.finish, begin + w.measured) - std::max(d.exec_at, begin));
    }
    CHECK(r.busy_fraction ==
          doctest::Approx(to_seconds(busy) / (to_seconds(w.measured) * w.devices)));
  }
}

TEST_CASE("on random workloads no request is lost, and no device runs two batches at one time") {
  SUBCASE("clockwork, at arrival") {
    check_runs([](const rival_facts& f) { return clockwork{f, 1h}; });
  }
  SUBCASE("clockwork, ahead") {
    check_runs([](const rival_facts& f) { return clockwork{f, 3ms}; });
  }
  SUBCASE("clockwork, when free") {
    check_runs([](const rival_facts& f) { return clockwork{f, 0ms}; });
  }
  SUBCASE("shepherd") {
    check_runs([](const rival_facts& f) { return shepherd{f}; });
  }
  SUBCASE("nexus") {
    check_runs([](const rival_facts& f) { return nexus{f, 200ms}; });
  }
}

TEST_CASE("a run is the same each time") {
  test::random_source random{7};
  const workload w = random_workload(random);
  const auto make = [](const rival_facts& f) { return shepherd{f}; };
  const run_result a = simulate_rival(w, make, {.rate = 500, .seed = 4}, [](time_point) {});
  const run_result b = simulate_rival(w, make, {.rate = 500, .seed = 4}, [](time_point) {});
  CHECK(a.completed == b.completed);
  CHECK(a.busy_fraction == b.busy_fraction);
  CHECK(a.queueing_max_ms == b.queueing_max_ms);
}

}  // namespace
}  // namespace cohort::sim::rival_simulation_test
