// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/autoscale.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cohort::deferred::autoscale_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a bad rate r asks for N r / (1 - r) more devices") {
  CHECK(advise(24, 0.2, 0).devices == 6);
  CHECK(advise(24, 0.011, 0.5).devices == 1);  // 0.27, and at least one.
  CHECK(advise(4, 1, 0).devices == 16);
}
TEST_CASE("idle devices are released, but never the last") {
  CHECK(advise(24, 0, 0.5).devices == -12);
  CHECK(advise(24, 0.01, 0.03).devices == 0);
  CHECK(advise(4, 0, 1).devices == -3);
}

/// Batches of b take 5 + b ms.
const latency_curve usual{linear_latency{5ms, 1ms}, 64};

TEST_CASE("work is counted in batches as large as devices in turns and arrivals allow") {
  // Of 8 devices in turns 9/8 l(b) <= 20 would allow 12; but while 8 come, 7 ms, l(8) = 13 is left.
  const model_demand few[]{{&usual, 20ms, 1000}};
  CHECK(work_of(few, 8).devices == doctest::Approx(1000 * 0.013 / 8));
  // Chance: 1000 requests of 1.625 ms each, over 20 - 13 ms.
  CHECK(work_of(few, 8).deviation ==
        doctest::Approx(std::sqrt(1000 * 0.001625 * 0.001625 / 0.007)));
  const model_demand many[]{{&usual, 20ms, 100'000}};
  CHECK(work_of(many, 8).devices == doctest::Approx(100'000 * 0.017 / 12));
  CHECK(work_of(many, 1).devices == doctest::Approx(100'000 * 0.010 / 5));  // 2 l(b) <= 20.
  const model_demand none[]{{&usual, 20ms, 0}};
  CHECK(work_of(none, 8).devices == 0);
  const model_demand both[]{{&usual, 20ms, 1000}, {&usual, 20ms, 1000}};
  CHECK(work_of(both, 8).devices == doctest::Approx(2 * 1000 * 0.013 / 8));
  CHECK(work_of(both, 8).models == doctest::Approx(2));
}

TEST_CASE("what is needed is the work, a part of a device, and room for chance") {
  const model_demand one[]{{&usual, 20ms, 1000}};
  CHECK(devices_needed(one) == 3);  // 1.625 + 1.2 + 0.1 + 0.05 * 0.614 = 2.96.
  CHECK(devices_needed(one, 2) == 6);
  CHECK(devices_needed(one, 1, 4) == 8);  // 6.5 + 1.3 + 0.05 * 2 * 0.614 = 7.86.
  const model_demand none[]{{&usual, 20ms, 0}, {&usual, 20ms, 0}};
  CHECK(devices_needed(none) == 1);
  CHECK(devices_needed({}) == 1);
}

TEST_CASE("more load needs as many devices, but for rounding where batches just become larger") {
  std::uint32_t before = 1;
  for (double rate = 1; rate < 1e6; rate *= 1.1) {
    const model_demand one[]{{&usual, 20ms, rate}};
    const std::uint32_t n = devices_needed(one);
    CHECK(n + 1 >= before);
    before = n;
  }
  CHECK(before > 1000);
}

/// An advisor with windows of a second.
struct advised {
  autoscale_advisor advisor{{.window = 1s, .calm_windows = 2}};
  time_point now = t0;
  std::uint32_t devices;

  explicit advised(std::uint32_t n) : devices{n} { CHECK_FALSE(advisor.advance(now, devices, {})); }
  /// @returns Devices to add in a window of such a rate.
  std::int64_t window(double rate, double bad = 0) {
    advisor.on_ends(1000, static_cast<std::uint64_t>(1000 * bad));
    now += 1s;
    const model_demand demand[]{{&usual, 20ms, rate}};
    REQUIRE(advisor.advance(now, devices, demand));
    return advisor.advice().devices;
  }
};

TEST_CASE("devices are asked for at once, whatever is lost, and spared after calm windows") {
  advised a{10};
  a.advisor.on_busy(5s);
  CHECK(a.window(1000) == 0);  // Three would do; calm once.
  CHECK(a.advisor.advice().idle_fraction == doctest::Approx(0.5));
  CHECK(a.window(1000) == -7);
  const model_demand many[]{{&usual, 20ms, 20'000}};
  const std::int64_t needed = devices_needed(many);
  advised overloaded{10};
  CHECK(overloaded.window(20'000, 0.95) == needed - 10);
  CHECK(overloaded.advisor.advice().bad_rate == doctest::Approx(0.95));
  CHECK(overloaded.window(20'000, 0.95) == needed - 10);  // And no more than that.
  CHECK_FALSE(overloaded.advisor.advance(overloaded.now + 500ms, 10, many));  // Not over yet.
}

TEST_CASE("a growing load is followed to where it will be") {
  const auto asked = [](duration lead) {
    autoscale_advisor a{{.window = 10s, .lead = lead}};
    time_point now = t0;
    (void)a.advance(now, 100, {});
    double rate = 10'000;
    for (int i = 0; i < 6; ++i, rate *= 1.02) {
      const model_demand demand[]{{&usual, 20ms, rate}};
      (void)a.advance(now += 10s, 15, demand);
    }
    return a.advice().devices;
  };
  CHECK(asked(0s) > 0);
  // Six windows more at 2 % each: 12 % of some 18.
  CHECK(asked(60s) >= asked(0s) + 2);
  CHECK(asked(60s) <= asked(0s) + 3);
}

TEST_CASE("where there should be enough and is not, more is asked for, as long as that helps") {
  advised a{20};
  const double rate = 12'000;
  const model_demand demand[]{{&usual, 20ms, rate}};
  a.devices = devices_needed(demand);
  (void)a.window(rate);
  CHECK(a.advisor.factor() == 1);
  (void)a.window(rate, 0.1);
  CHECK(a.advisor.factor() == doctest::Approx(1.2));
  CHECK(a.advisor.advice().devices >= 3);
  SUBCASE("it helps: after calm windows a little less is asked for") {
    a.devices += static_cast<std::uint32_t>(a.advisor.advice().devices);
    for (int i = 0; i < 6; ++i) (void)a.window(rate);
    CHECK(a.advisor.factor() < 1.2);
    CHECK(a.advisor.factor() > 1.1);
  }
  SUBCASE("it does not: advice goes back") {
    double most = 1;
    for (int i = 0; i < 12; ++i) {
      a.devices +=
          static_cast<std::uint32_t>(std::max<std::int64_t>(0, a.advisor.advice().devices));
      (void)a.window(rate, 0.1);
      most = std::max(most, a.advisor.factor());
    }
    CHECK(most < 2.2);
    CHECK(a.advisor.factor() == 1);
  }
}

TEST_CASE("the advisor rejects options outside of their ranges") {
  CHECK_THROWS_AS(autoscale_advisor({.window = 0s}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.lead = -1s}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.bad_threshold = 2}), config_error);
  CHECK_THROWS_AS(autoscale_advisor({.calm_windows = 0}), config_error);
}

}  // namespace
}  // namespace cohort::deferred::autoscale_test
