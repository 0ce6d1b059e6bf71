// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/latency_model.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <cstdint>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

namespace cohort::latency_model_test {
namespace {
using namespace std::chrono_literals;

struct unitless_latency {
  int operator()(std::uint32_t) const noexcept { return 1; }
};
static_assert(!latency_model<unitless_latency>);
struct throwing_latency {
  duration operator()(std::uint32_t) const { return 1ms; }
};
static_assert(!latency_model<throwing_latency>);

TEST_CASE("a curve is told for a batch one above the largest, which never runs") {
  const latency_curve curve{linear_latency{5ms, 1ms}, 3};
  CHECK(curve.at(1) == 6ms);
  CHECK(curve.at(3) == 8ms);
  CHECK(curve.at(4) == unbounded);
  CHECK(curve.times(2).at(4) == unbounded);
  CHECK(curve.plus(1ms, 1ms).at(4) == unbounded);
  CHECK(curve.largest_within(unbounded) == 3);
}
TEST_CASE("linear latency is fixed + per_request * batch") {
  constexpr linear_latency latency{.fixed = 5ms, .per_request = 2ms};
  static_assert(latency(1) == 7ms);
  CHECK(latency(10) == 25ms);
  CHECK(linear_latency{.fixed = 0ms, .per_request = 3us}(4'000'000'000U) == 12'000s);
}

TEST_CASE("a table gives its points back, whatever their order") {
  const table_latency table{{{8, 17ms}, {1, 3ms}, {4, 9ms}}};
  CHECK(table(1) == 3ms);
  CHECK(table(4) == 9ms);
  CHECK(table(8) == 17ms);
  REQUIRE(table.points().size() == 3);
  CHECK(table.points()[0].batch == 1);
  CHECK(table.points()[2].batch == 8);
}

TEST_CASE("between its points a table is linear, to the nearest nanosecond") {
  const table_latency table{{{1, 3ms}, {4, 9ms}, {8, 17ms}}};
  CHECK(table(2) == 5ms);
  CHECK(table(3) == 7ms);
  CHECK(table(6) == 13ms);
  const table_latency thirds{{{1, 100ns}, {4, 110ns}}};
  CHECK(thirds(2) == 103ns);  // 103.33
  CHECK(thirds(3) == 107ns);  // 106.67
}

TEST_CASE("below its first point a table holds the first latency") {
  const table_latency table{{{4, 9ms}, {8, 17ms}}};
  CHECK(table(1) == 9ms);
  CHECK(table(3) == 9ms);
}

TEST_CASE("beyond its last point a table goes on with the slope of its last segment") {
  const table_latency table{{{1, 1ms}, {4, 9ms}, {8, 17ms}}};
  CHECK(table(9) == 19ms);
  CHECK(table(16) == 33ms);
}

TEST_CASE("beyond a single point latency grows in proportion, and below it holds") {
  const table_latency single{{{4, 9ms}}};
  CHECK(single(2) == 9ms);
  CHECK(single(4) == 9ms);
  CHECK(single(100) == 225ms);
}

TEST_CASE("an extrapolation that does not fit saturates at unbounded") {
  const table_latency steep{{{1, 1ns}, {2, unbounded}}};
  CHECK(steep(2) == unbounded);
  CHECK(steep(3) == unbounded);
  CHECK(steep(4'000'000'000U) == unbounded);
  CHECK(table_latency{{{1, 1h}}}(4'000'000'000U) == unbounded);
}

TEST_CASE("in steps a batch takes what the next larger measured one takes") {
  const table_latency table{{{1, 5ms}, {32, 8ms}, {64, 14ms}}, between_sizes::step};
  CHECK(table(1) == 5ms);
  CHECK(table(2) == 8ms);
  CHECK(table(32) == 8ms);
  CHECK(table(33) == 14ms);
  CHECK(table(65) == 14187500ns);  // Beyond them on the last line.
  CHECK(table.between() == between_sizes::step);
}
TEST_CASE("a measurement that falls is raised to the largest before it") {
  const table_latency table{{{1, 5ms}, {2, 4ms}, {3, 8ms}, {4, 6ms}, {5, 7ms}}};
  CHECK(table(2) == 5ms);
  CHECK(table(3) == 8ms);
  CHECK(table(4) == 8ms);
  CHECK(table(5) == 8ms);
  CHECK(table(50) == 8ms);  // The last segment is flat after the repair.
}

TEST_CASE("a table refuses points that say nothing") {
  CHECK(test::gist_of<config_error>([&] { (void)table_latency{{}}; }) ==
        "table_latency: points ... empty");
  CHECK_THROWS_AS((table_latency{{{0, 1ms}}}), config_error);
  CHECK_THROWS_AS((table_latency{{{2, 1ms}, {2, 1ms}}}), config_error);
  CHECK_THROWS_AS((table_latency{{{1, 0ms}}}), config_error);
  CHECK_THROWS_AS((table_latency{{{1, 2ms}, {2, -1ms}}}), config_error);
}

TEST_CASE("a table made of any measurements never falls") {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<latency_point> points;
    std::uint32_t batch = 0;
    for (std::uint32_t n = 1 + random.below(12U); n > 0; --n) {
      batch += 1 + random.below(9U);
      points.push_back({batch, duration{1 + random.below(1000)}});
    }
    const table_latency table{points};
    duration last{1};
    for (std::uint32_t b = 1; b < batch + 50; ++b) {
      CAPTURE(b);
      REQUIRE(table(b) >= last);
      last = table(b);
    }
  }
}

TEST_CASE("a partitioned latency is linear between shares and flat outside them") {
  const partitioned_latency latency{{{device_share{50}, table_latency{{{1, 8ms}, {2, 12ms}}}},
                                     {device_share{20}, table_latency{{{1, 20ms}, {2, 30ms}}}}}};
  CHECK(latency(1, device_share{20}) == 20ms);
  CHECK(latency(1, device_share{50}) == 8ms);
  CHECK(latency(1, device_share{30}) == 16ms);  // 20 - (10 / 30) * 12
  CHECK(latency(2, device_share{40}) == 18ms);  // 30 - (20 / 30) * 18
  CHECK(latency(1, device_share{10}) == 20ms);
  CHECK(latency(2, device_share{100}) == 12ms);
}

TEST_CASE("a partitioned latency refuses an empty list and a share that occurs twice") {
  const table_latency table{{{1, 1ms}}};
  CHECK_THROWS_AS(partitioned_latency{{}}, config_error);
  CHECK(test::gist_of<config_error>([&] {
          (void)(partitioned_latency{{{device_share{20}, table}, {device_share{20}, table}}});
        }) == "partitioned_latency ... share ... repeated");
}

TEST_CASE("a curve tabulates its model and says that larger batches never run") {
  const latency_curve curve{linear_latency{.fixed = 5ms, .per_request = 2ms}, 4};
  CHECK(curve.max_batch() == 4);
  CHECK(curve(1) == 7ms);
  CHECK(curve(4) == 13ms);
  CHECK(curve(5) == unbounded);
}

TEST_CASE("a curve several times as long stays a curve, and never passes unbounded") {
  const latency_curve curve{linear_latency{.fixed = 5ms, .per_request = 2ms}, 4};
  CHECK(curve.times(3)(1) == 21ms);
  CHECK(curve.times(3)(4) == 39ms);
  CHECK(curve.times(3)(5) == unbounded);
  CHECK(curve.times(1)(2) == curve(2));
  const latency_curve long_ones{linear_latency{.fixed = unbounded / 2, .per_request = 2ms}, 4};
  CHECK(long_ones.times(3)(1) == unbounded);
}

TEST_CASE("largest_within is the largest batch that fits a budget") {
  const latency_curve curve{linear_latency{.fixed = 5ms, .per_request = 2ms}, 4};
  CHECK(curve.largest_within(7ms - 1ns) == 0);
  CHECK(curve.largest_within(7ms) == 1);
  CHECK(curve.largest_within(12ms) == 3);
  CHECK(curve.largest_within(13ms) == 4);
  CHECK(curve.largest_within(unbounded) == 4);
  CHECK(curve.largest_within(0ms) == 0);
  CHECK(curve.largest_within(-1s) == 0);
}

TEST_CASE("a curve refuses no batches and a first batch that takes no time") {
  const linear_latency one_ms{.fixed = 1ms, .per_request = 0ms};
  CHECK_THROWS_AS((latency_curve{one_ms, 0}), config_error);
  CHECK_THROWS_AS((latency_curve{linear_latency{.fixed = 0ms, .per_request = 0ms}, 4}),
                  config_error);
}

TEST_CASE("a curve of a model that falls is repaired") {
  struct sawtooth {
    duration operator()(std::uint32_t b) const noexcept { return b == 2 ? 1ms : b * 2ms; }
  };
  const latency_curve curve{sawtooth{}, 3};
  CHECK(curve(2) == 2ms);
  CHECK(curve(3) == 6ms);
  CHECK(curve.largest_within(2ms) == 2);
}

TEST_CASE("largest_within inverts any curve") {
  for (std::uint32_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<latency_point> points;
    for (std::uint32_t b = 1; b <= 20; ++b) {
      points.push_back({b, duration{1 + random.below(40)}});
    }
    const latency_curve curve{table_latency{points}, 20};
    for (std::int64_t budget = 0; budget < 45; ++budget) {
      CAPTURE(budget);
      const std::uint32_t b = curve.largest_within(duration{budget});
      if (b > 0) REQUIRE(curve(b) <= duration{budget});
      if (b < 20) REQUIRE(curve(b + 1) > duration{budget});
    }
  }
}

}  // namespace
}  // namespace cohort::latency_model_test
