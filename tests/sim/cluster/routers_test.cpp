// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/cluster/routers.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/sim/goodput.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::sim::routers_test {
namespace {
using namespace std::chrono_literals;
using deferred_scheduler = deferred::basic_scheduler<deferred::frontrun, deferred::drop_head>;
using eager_scheduler = deferred::basic_scheduler<deferred::eager, deferred::head>;

/// l(b) = 50 + 10 b ms, SLO 250 ms.
workload models(std::uint32_t count, std::uint32_t endpoints) {
  workload w;
  w.devices = endpoints;
  w.warmup = 1s;
  w.measured = 5s;
  for (std::uint32_t i = 0; i < count; ++i) {
    w.models.push_back({.name = "m", .latency = linear_latency{50ms, 10ms}, .slo = 250ms});
  }
  return w;
}
run_result with_picker(const workload& w, const run_options& o) {
  return simulate_cluster(
      w,
      [](const workload& load) {
        return picked<deferred_scheduler>{load, deferred_scheduler{load.told_delays()}};
      },
      o, [](time_point) {});
}
template <class Choice>
run_result with_route(const workload& w, const run_options& o) {
  return simulate_cluster(
      w,
      [&](const workload& load) {
        return routed<Choice, eager_scheduler>{
            load, Choice{load, o.seed},
            [](const deferred::network_delays& d) { return eager_scheduler{d}; }};
      },
      o, [](time_point) {});
}

TEST_CASE("choices go by what a gateway knows") {
  const workload w = models(2, 3);
  const std::vector<std::uint32_t> in_flight{2, 0, 1};
  round_robin turn{w, 1};
  const auto next = [&](std::uint32_t model) { return turn.choose({in_flight, model}); };
  CHECK(std::vector{next(0), next(0), next(1), next(0), next(0)} ==
        std::vector<std::uint32_t>{0, 1, 0, 2, 0});
  least_request least{w, 1};
  CHECK(least.choose({in_flight, 0}) == 1);
  CHECK(least.choose({std::vector<std::uint32_t>{1, 1, 1}, 0}) == 2);
  CHECK(least.choose({std::vector<std::uint32_t>{1, 1, 1}, 0}) == 0);
  two_choices two{w, 1};
  std::vector<int> times(3);
  for (int i = 0; i < 3000; ++i) ++times[two.choose({in_flight, 0})];
  // The busiest only if both are it: 1 in 9. The idle one unless neither is it: 5 in 9.
  CHECK(times[0] == doctest::Approx(333).epsilon(0.15));
  CHECK(times[1] == doctest::Approx(1667).epsilon(0.1));
}
TEST_CASE("behind the picker endpoints do what one engine's devices do") {
  const workload w = models(3, 4);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    const run_options o{.rate = 150, .seed = seed};
    const run_result ours = with_picker(w, o);
    const run_result engine =
        simulate(w, [](const auto& d) { return deferred_scheduler{d}; }, o, [](time_point) {});
    CHECK(ours.arrived == engine.arrived);
    CHECK(ours.completed == engine.completed);
    CHECK(ours.latency_p99_ms == engine.latency_p99_ms);
    CHECK(ours.batch_mean == engine.batch_mean);
  }
}
TEST_CASE("every request is in time, late or dropped, on every route and over a network") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    workload w = models(1 + random.below(3U), 1 + random.below(5U));
    w.measured = 2s;
    if (random.one_in(2)) w.network = {.control = 1ms, .response = 1ms};
    if (random.one_in(2)) w.reality.noise.sigma = 0.2;
    const run_options o{.rate = 20.0 + random.below(300U), .seed = seed};
    for (const run_result& r :
         {with_picker(w, o), with_route<least_request>(w, o), with_route<two_choices>(w, o),
          with_route<round_robin>(w, o), with_route<random_endpoint>(w, o)}) {
      CHECK(r.completed + r.late + r.dropped + r.refused == r.arrived);
      CHECK(r.open == 0);
    }
  }
}
TEST_CASE("held requests make a higher rate possible than requests that are sent on") {
  const workload w = models(1, 8);
  const search_options search{.precision = 0.02, .seeds = 1};
  const auto peak = [&](auto run) { return find_goodput(w, search, 1e5, run).goodput; };
  const double ours = peak(with_picker);
  CHECK(ours >= 1.12 * peak(with_route<round_robin>));
  CHECK(ours >= 1.12 * peak(with_route<least_request>));
}

}  // namespace
}  // namespace cohort::sim::routers_test
