// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/recorder.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <limits>

namespace cohort::sim::recorder_test {
namespace {
using namespace std::chrono_literals;

workload one_second() {
  workload w;
  w.devices = 2;
  w.models = {{.name = "a", .latency = linear_latency{5ms, 1ms}, .slo = 12ms}};
  w.warmup = 1s;
  w.measured = 1s;
  return w;
}

TEST_CASE("a percentile is the value of the nearest rank") {
  std::vector<int> v{40, 10, 30, 20};
  CHECK(percentile(v, 0) == 10);
  CHECK(percentile(v, 0.25) == 10);
  CHECK(percentile(v, 0.5) == 20);
  CHECK(percentile(v, 0.51) == 30);
  CHECK(percentile(v, 0.99) == 40);
  CHECK(percentile(v, 1) == 40);
  std::vector<int> none;
  CHECK(percentile(none, 0.5) == 0);
}

/// Feeds a recorder by hand. Requests live here.
struct hand {
  workload w = one_second();
  recorder r{w, 100, true};
  std::deque<request> requests;

  request& arrive(duration at) {
    request& x = requests.emplace_back();
    x.model = model_id{0};
    x.arrival = time_point{at};
    x.sequence = requests.size();
    r.arrived(x.model, x.arrival);
    return x;
  }
  void launch(std::initializer_list<request*> in, std::uint32_t device, duration at, duration start,
              duration finish) {
    deferred::batch b{.model = model_id{0},
                      .device = device_id{device},
                      .requests = {},
                      .first_sequence = (*in.begin())->sequence,
                      .exec_at = time_point{start},
                      .latest = time_point{start},
                      .expected = finish - start};
    for (request* x : in) b.requests.push_back(*x);
    r.launched(b, time_point{at}, time_point{start}, time_point{finish});
    b.requests.clear();
  }
};

TEST_CASE("only what arrives in the measured part counts, and every number is worked by hand") {
  hand h;
  request& early = h.arrive(900ms);
  request& a = h.arrive(1100ms);
  request& b = h.arrive(1200ms);
  request& c = h.arrive(1300ms);
  request& d = h.arrive(1990ms);
  request& after = h.arrive(2000ms);  // The measured part is half open.
  CHECK(h.r.unresolved() == 4);

  h.launch({&early}, 0, 950ms, 950ms, 1050ms);  // 50 ms of it in the measured part.
  h.r.ended(early, outcome::completed, time_point{1050ms});
  h.launch({&a, &b}, 0, 1250ms, 1300ms, 1400ms);  // 100 ms.
  h.r.ended(a, outcome::completed, time_point{1400ms});
  h.r.ended(b, outcome::late, time_point{1400ms});
  h.r.ended(c, outcome::dropped, time_point{1350ms});
  CHECK(h.r.unresolved() == 1);
  h.launch({&d, &after}, 1, 1990ms, 1995ms, 2095ms);  // 5 ms.
  h.r.ended(d, outcome::completed, time_point{2095ms});
  h.r.ended(after, outcome::late, time_point{2095ms});
  CHECK(h.r.unresolved() == 0);

  const run_result r = h.r.result();
  CHECK(r.offered_rps == 100);
  CHECK(r.arrived == 4);
  CHECK(r.completed == 2);
  CHECK(r.late == 1);
  CHECK(r.dropped == 1);
  CHECK(r.bad_rate == 0.5);
  CHECK(r.throughput_rps == 2);
  CHECK(r.busy_fraction == doctest::Approx(0.155 / 2));
  CHECK(r.devices_used == 2);
  CHECK(r.batch_mean == 2);  // The first was sent before the measured part.
  CHECK(r.batch_p50 == 2);
  CHECK(r.queueing_p50_ms == doctest::Approx(100));  // 200, 100, 5 ms.
  CHECK(r.queueing_max_ms == doctest::Approx(200));
  CHECK(r.latency_p50_ms == doctest::Approx(200));  // 105, 200, 300, never.
  CHECK(r.latency_p90_ms == infinitely_late);
  // Four requests a second need one device; but half of them were bad: one more than two.
  CHECK(r.advice.devices == 1);
  REQUIRE(r.per_model.size() == 1);
  CHECK(r.per_model[0].bad_rate == 0.5);
  CHECK(r.per_model[0].p99_ms == infinitely_late);
  CHECK(r.simulated_requests == 6);
  REQUIRE(r.dispatches.size() == 3);
  CHECK(r.dispatches[1].at == time_point{1250ms});
  CHECK(r.dispatches[1].exec_at == time_point{1300ms});
  CHECK(r.dispatches[1].requests == std::vector<std::uint64_t>{2, 3});
}

TEST_CASE("a request that is never resolved counts as dropped, infinitely late") {
  hand h;
  h.arrive(1500ms);
  const run_result r = h.r.result();
  CHECK(r.dropped == 1);
  CHECK(r.bad_rate == 1);
  CHECK(r.latency_p50_ms == infinitely_late);
}

TEST_CASE("a run without requests is all zeros") {
  hand h;
  const run_result r = h.r.result();
  CHECK(r.arrived == 0);
  CHECK(r.bad_rate == 0);
  CHECK(r.latency_p99_ms == 0);
  CHECK(r.batch_mean == 0);
}

TEST_CASE("the rate offered by a trace is counted") {
  hand h;
  h.w.arrivals = arrival_process::trace;
  h.arrive(1500ms);
  h.arrive(1600ms);
  CHECK(h.r.result().offered_rps == 2);
}

}  // namespace
}  // namespace cohort::sim::recorder_test
