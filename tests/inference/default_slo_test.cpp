// SPDX-License-Identifier: Apache-2.0
#include <inference/default_slo.hpp>

#include <cohort/core/latency_model.hpp>
#include <cohort/core/time.hpp>
#include <cohort/serve/infer_request.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

namespace cohort::inference::default_slo_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("times are rounded up to 1, 2 or 5 times a power of ten") {
  const std::pair<double, double> rounded[] = {
      {0.0003, 0.0005}, {0.2, 0.2},   {0.21, 0.5}, {1, 1},          {1.01, 2},
      {2, 2},           {3, 5},       {5, 5},      {5.1, 10},       {10, 10},
      {99.9, 100},      {100.1, 200}, {151, 200},  {200, 200},      {200.1, 500},
      {501, 1e3},       {1e3, 1e3},   {3e6, 5e6},  {5.00001e6, 1e7}};
  for (const auto& [ms, up] : rounded) {
    CAPTURE(ms);
    CHECK(round_up_125(ms) == doctest::Approx(up).epsilon(1e-9));
  }
}

TEST_CASE("at best a batch takes no longer than smaller ones in a row") {
  // The runs of 4 and 8 were all disturbed. 4 rows are two batches of 2: 6 ms; 8 are four: 12 ms.
  const std::vector<latency_point> least{{1, 2ms}, {2, 3ms}, {4, 9ms}, {8, 30ms}};
  const std::vector<latency_point> best = at_best(least);
  REQUIRE(best.size() == 4);
  CHECK(best[0].latency == 2ms);
  CHECK(best[1].latency == 3ms);
  CHECK(best[2].latency == 6ms);
  CHECK(best[3].latency == 12ms);
  // 3 rows are two batches of 2, the second half empty.
  CHECK(at_best(std::vector<latency_point>{{2, 3ms}, {3, 9ms}})[1].latency == 6ms);
}

TEST_CASE("a smaller batch takes no longer than a larger one that holds it") {
  CHECK(at_best(std::vector<latency_point>{{1, 5ms}, {2, 3ms}})[0].latency == 3ms);
}

TEST_CASE("a default SLO leaves room for two halves and a largest batch") {
  // 1.5 (2 · 20 + 38) = 117 ms, up to 200.
  const slo_model m{20ms, 38ms, 6ms};
  const default_slo a = default_slo_of(m, 1, 1.5);
  CHECK(a.slo == 200ms);
  CHECK(a.reason ==
        "1.5 x (2 x 20 for half a largest batch + 38 for a largest one) = 117 ms at best, rounded "
        "up to 1, 2 or 5 x 10^n");
  // Two batches share a device: 234 ms.
  CHECK(default_slo_of(m, 2, 1.5).slo == 500ms);
  CHECK(default_slo_of(m, 2, 1.5).reason.starts_with("2 x 1.5 x (2 x 20 "));
}

TEST_CASE("starts whose measurements differ by noise have the same default SLOs") {
  for (const double noise : {0.9, 1.0, 1.1}) {
    CAPTURE(noise);
    CHECK(default_slo_of({from_ms(20 * noise), from_ms(38 * noise), 6ms}, 1, 1.5).slo == 200ms);
  }
}

TEST_CASE("a default SLO is never too short for one request, however busy the machine was") {
  // 1.5 (2 · 4 + 8) = 24 ms, but one request is thought to take 70: 140 ms, up to 200.
  const default_slo d = default_slo_of({4ms, 8ms, 70ms}, 1, 1.5);
  CHECK(d.slo == 200ms);
  CHECK(d.reason.starts_with("2 x 70 ms for a batch of 1, "));
}

TEST_CASE("what nobody asked for is an aim, and no deadline") {
  serve::model_meta m{.name = "m", .platform = "p", .inputs = {}, .outputs = {}};
  CHECK(test::gist(aim_at(m, {20ms, "because"}, 5ms)) == "slo: m ... 20 ms: because");
  CHECK(m.slo == 20ms);
  CHECK_FALSE(m.has_deadline);
  CHECK(test::gist(aim_at(m, {20ms, "because"}, 50ms)) == "slo: m ... 50 ms: ... least ...");
  CHECK(m.slo == 50ms);
}

TEST_CASE("who has waited for a queue's time-out still has time for a largest batch") {
  const latency_curve l{linear_latency{5ms, 1ms}, 8};
  CHECK(with_largest_batch(40ms, l) == 53ms);
  CHECK(with_largest_batch(40ms, l, 2) == 66ms);
}

TEST_CASE("HTTP takes at most a tenth of a default SLO") {
  // Half a millisecond for HTTP: 5 ms.
  CHECK(least_default_slo(500) == 5ms);
  CHECK(least_default_slo(0) == 0ms);
}

}  // namespace
}  // namespace cohort::inference::default_slo_test
