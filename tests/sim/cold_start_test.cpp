// SPDX-License-Identifier: Apache-2.0
// The first ten seconds of a scheduler that tunes itself, beside one that starts all at once: where
// that one loses next to nobody, nobody waits longer for being tuned.
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/simulation.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::sim::cold_start_test {
namespace {
using namespace std::chrono_literals;

/// 1 to 6 models on 1 to 8 devices, at 2 to 80 % of about what they can do.
struct draw {
  workload load;
  double rate;
};
draw drawn(std::uint64_t seed) {
  test::random_source random{seed};
  const auto between = [&](double low, double high) {
    return low + (high - low) * random.below(1'000'000) / 1e6;
  };
  workload w;
  w.devices = 1 + random.below(8U);
  w.warmup = 0s;
  w.measured = 10s;
  w.shares = random.one_in(2) ? popularity::equal : popularity::zipf;
  double ms_of_all = 0;
  for (std::uint32_t m = 1 + random.below(6U); m > 0; --m) {
    const double fixed = std::exp(between(0, std::log(30)));
    const double each = fixed * std::exp(between(std::log(0.01), 0));
    w.models.push_back({.name = std::to_string(m),
                        .latency = linear_latency{from_ms(fixed), from_ms(each)},
                        .slo = from_ms((fixed + each) * between(3, 12))});
    ms_of_all += fixed / 8 + each;
  }
  w.reality.noise = {.sigma = random.below(4U) / 20.0, .bias = 0.8 + random.below(4U) / 5.0};
  const double most = w.devices * 1000.0 * static_cast<double>(w.models.size()) / ms_of_all;
  return {w, most * between(0.02, 0.8)};
}

TEST_CASE("a cold start is as fast as starting everything at once") {
  int judged = 0;
  for (std::uint64_t seed = 1; seed <= test::seeds(32); ++seed) {
    CAPTURE(seed);
    const draw d = drawn(seed);
    const run_options o{.rate = d.rate, .seed = seed};
    const run_result eager =
        simulation{d.load, deferred::basic_scheduler<deferred::eager, deferred::head>{}, o}.run();
    if (eager.bad_rate > 0.001 || eager.arrived < 20) continue;
    ++judged;
    const run_result own = simulation{d.load, deferred::tuned_scheduler{}, o}.run();
    CHECK(own.latency_p50_ms <= 1.1 * eager.latency_p50_ms);
    CHECK(own.latency_p99_ms <= 1.2 * eager.latency_p99_ms);
  }
  CHECK(judged >= static_cast<int>(test::at_least(12)));
}

}  // namespace
}  // namespace cohort::sim::cold_start_test
