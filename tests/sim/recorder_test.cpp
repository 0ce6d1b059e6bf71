// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/recorder.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <limits>
#include <support/complaint.hpp>
#include <utility>

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
  CHECK(h.r.open() == 4);

  h.launch({&early}, 0, 950ms, 950ms, 1050ms);  // 50 ms of it in the measured part.
  h.r.ended(early, outcome::completed, time_point{1050ms});
  h.launch({&a, &b}, 0, 1250ms, 1300ms, 1400ms);  // 100 ms.
  h.r.ended(a, outcome::completed, time_point{1400ms});
  h.r.ended(b, outcome::late, time_point{1400ms});
  h.r.ended(c, outcome::dropped, time_point{1350ms});
  CHECK(h.r.open() == 1);
  h.launch({&d, &after}, 1, 1990ms, 1995ms, 2095ms);  // 5 ms.
  h.r.ended(d, outcome::completed, time_point{2095ms});
  h.r.ended(after, outcome::late, time_point{2095ms});
  CHECK(h.r.open() == 0);

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

TEST_CASE("each outcome is counted as what it is, and a request without one as open") {
  hand h;
  const std::pair<outcome, int> ends[] = {{outcome::completed, 6}, {outcome::late, 5},
                                          {outcome::dropped, 4},   {outcome::cancelled, 3},
                                          {outcome::failed, 2},    {outcome::refused, 1}};
  for (const auto& [how, times] : ends) {
    for (int i = 0; i < times; ++i) h.r.ended(h.arrive(1500ms), how, time_point{1600ms});
  }
  h.arrive(1500ms);
  h.arrive(1500ms);
  const run_result r = h.r.result();
  CHECK(r.arrived == 23);
  CHECK(r.completed == 6);
  CHECK(r.late == 5);
  CHECK(r.dropped == 9);
  CHECK(r.refused == 1);
  CHECK(r.open == 2);
  CHECK(r.per_model[0].dropped == 9);
  CHECK(r.per_model[0].open == 2);
  CHECK(r.bad_rate == doctest::Approx(17.0 / 23));
}

TEST_CASE("a request that never ends is infinitely late") {
  hand h;
  h.arrive(1500ms);
  const run_result r = h.r.result();
  CHECK(r.open == 1);
  CHECK(r.bad_rate == 1);
  CHECK(r.latency_p50_ms == infinitely_late);
}

TEST_CASE("a run is over when no measured request is open, and one that cannot end names one") {
  hand h;
  request_pool pool;
  request& r = pool.take();
  r.model = model_id{0};
  r.arrival = time_point{1500ms};
  h.r.arrived(r.model, r.arrival);
  CHECK_FALSE(h.r.is_over(time_point{1999ms}, pool));
  // SLO 12 ms: 100 SLOs and 10 s after the last sign of a measured request.
  CHECK_FALSE(h.r.is_over(time_point{13'200ms}, pool));
  CHECK(test::gist_of<lost_request>([&] { (void)h.r.is_over(time_point{13'200ms} + 1ns, pool); }) ==
        "simulation ... \"a\" ... 1500000 us never ends");
  CHECK_THROWS_AS((void)h.r.is_over(never, pool), lost_request);
  h.launch({&r}, 0, 1600ms, 1600ms, 60s);
  CHECK_FALSE(h.r.is_over(time_point{71'200ms}, pool));
  h.r.ended(r, outcome::late, time_point{60s});
  pool.give_back(r);
  CHECK(h.r.is_over(time_point{60s}, pool));
  CHECK(h.r.is_over(never, pool));
}

TEST_CASE("a pool reuses requests that have ended, and knows the oldest that has not") {
  request_pool pool;
  CHECK(pool.oldest_open() == nullptr);
  request& a = pool.take();
  a.arrival = time_point{2ms};
  request& b = pool.take();
  b.arrival = time_point{1ms};
  CHECK(pool.oldest_open() == &b);
  pool.give_back(b);
  CHECK(pool.oldest_open() == &a);
  CHECK(&pool.take() == &b);
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
