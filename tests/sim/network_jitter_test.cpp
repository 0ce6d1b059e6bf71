// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/network_jitter.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/goodput.hpp>
#include <cohort/sim/workload.hpp>

#include <chrono>
#include <cmath>

namespace cohort::sim::network_jitter_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("without jitter each delay is the usual one") {
  jitter_source none;
  CHECK(none.draw(3ms) == 3ms);
  CHECK(network_jitter{.tail = 1ms}.is_none());
  CHECK(network_jitter{.tail_share = 0.5}.is_none());
  CHECK_FALSE(network_jitter{.sigma = 0.1}.is_none());
}

TEST_CASE("delays have the usual one as their mean, and a tail") {
  jitter_source spread{{.sigma = 0.5}, 7};
  jitter_source tailed{{.tail = 10ms, .tail_share = 0.01}, 7};
  double sum = 0;
  double squares = 0;
  int late = 0;
  constexpr int n = 100'000;
  for (int i = 0; i < n; ++i) {
    const double x = to_ms(spread.draw(1ms));
    CHECK(x > 0);
    sum += x;
    squares += x * x;
    const duration d = tailed.draw(1ms);
    CHECK((d == 1ms || d == 11ms));
    late += d == 11ms;
  }
  const double mean = sum / n;
  CHECK(mean == doctest::Approx(1).epsilon(0.01));
  // Of a lognormal: exp(sigma^2) - 1.
  CHECK(squares / n - mean * mean == doctest::Approx(std::exp(0.25) - 1).epsilon(0.05));
  CHECK(late == doctest::Approx(n * 0.01).epsilon(0.15));
  CHECK(jitter_source{{.sigma = 1}, 3}.draw(1ms) == jitter_source{{.sigma = 1}, 3}.draw(1ms));
}

TEST_CASE("jitter makes some late whom the policy thinks in time, and a margin helps") {
  workload w;
  w.devices = 4;
  w.models.push_back({.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 25ms});
  w.network.control = 100us;
  w.measured = 5s;
  const auto bad = [&w] {
    return simulate(
               w, [](const deferred::network_delays& d) { return deferred::scheduler{d}; },
               {.rate = 1500}, [](time_point) {})
        .bad_rate;
  };
  CHECK(bad() < 0.001);
  w.jitter = {.tail = 2ms, .tail_share = 0.1};
  const double with_tail = bad();
  CHECK(with_tail > 0.02);
  w.response_margin = 2ms;  // As much is left of each deadline.
  CHECK(bad() < 0.2 * with_tail);
}

}  // namespace
}  // namespace cohort::sim::network_jitter_test
