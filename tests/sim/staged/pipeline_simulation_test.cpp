// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <doctest/doctest.h>

#include <cohort/sim/rivals/cellular.hpp>
#include <cohort/sim/rivals/staged_rivals.hpp>
#include <cohort/sim/staged/pipeline_peak.hpp>

#include <array>
#include <chrono>
#include <utility>
#include <vector>

namespace cohort::sim::pipeline_simulation_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("figures of a run are worked out by nearest rank") {
  staged_result r;
  r.latency = {1ms, 4ms, 2ms, 3ms};
  r.completed = 4;
  r.first_arrival = t0 + 1s;
  r.last_end = t0 + 3s;
  CHECK(r.mean_ms() == 2.5);
  CHECK(r.percentile_ms(0.5) == 2);
  CHECK(r.percentile_ms(0.51) == 3);
  CHECK(r.percentile_ms(0.99) == 4);
  CHECK(r.bad_rate(2ms) == 0.5);
  CHECK(r.throughput_rps() == 2);
  CHECK(staged_result{}.mean_ms() == 0);
}
TEST_CASE("overhead is added to every item, and launches are recorded") {
  const batching::stage_profile p{
      std::vector<std::vector<batching::stage_point>>(2, {{.batch = 2, .time = 10ms}}), 2};
  const std::vector<staged_arrival> arrivals{{t0}, {t0}, {t0}};
  const auto r = run_staged(
      p, arrivals, {.overhead = 1ms, .record_launches = true},
      [&](staged_counts c) {
        return batching::pipeline<batching::plain_policy, staged_counts>{
            p, {.buffer_sets = 1}, {2}, std::move(c)};
      },
      [](time_point) {});
  CHECK(r.latency == std::vector<duration>{22ms, 22ms, 44ms});
  REQUIRE(r.launches.size() == 4);
  CHECK(r.launches[1].launched == t0 + 11ms);
  CHECK(r.launches[1].started == t0 + 11ms);
  CHECK(r.launches[1].ended == t0 + 22ms);
  CHECK(r.mean_batch == std::vector<double>{1.5, 1.5});
}
TEST_CASE("early exit leaves with its chance, and the same requests whatever the order") {
  const early_exit<batching::plain_policy> p{{}, 0.3, 5};
  int left = 0;
  for (std::uint64_t tag = 0; tag < 10'000; ++tag)
    left += p.judge({.tag = tag}, 1) == batching::verdict::leave ? 1 : 0;
  CHECK(left == doctest::Approx(3000).epsilon(0.05));
  CHECK(p.judge({.tag = 3}, 0) == p.judge({.tag = 3}, 0));
  CHECK_THROWS_AS((early_exit<batching::plain_policy>{{}, 1.5, 1}), config_error);
}
TEST_CASE("cells are joined at their boundaries by those who stand there") {
  const batching::stage_profile p{
      std::vector<std::vector<batching::stage_point>>(2, {{.batch = 2, .time = 10ms}}), 2};
  const std::vector<staged_arrival> arrivals{{t0}, {t0 + 5ms}, {t0 + 6ms}};
  const std::vector<std::vector<std::uint32_t>> once{{1}, {1}};
  const auto none = [](time_point) {};
  // 1: A 0-10, B 10-20; then A for 2 and 3, B for both.
  CHECK(run_cellular(p, arrivals, once, 0ms, none).latency ==
        std::vector<duration>{20ms, 35ms, 34ms});
  const std::vector<std::vector<std::uint32_t>> twice{{2}, {1}};
  // A for 1; A for 1 and 2; B for 1, 20-30; A for 2 and 3; B for 2, 40-50; A and B for 3.
  CHECK(run_cellular(p, arrivals, twice, 0ms, none).latency ==
        std::vector<duration>{30ms, 45ms, 64ms});
}
TEST_CASE("the peak is found by doubling and bisection") {
  const auto below = [](double limit) { return [limit](double rate) { return rate <= limit; }; };
  CHECK(find_peak(below(777), 0.001, 10) == doctest::Approx(777).epsilon(0.001));
  CHECK(find_peak(below(3), 0.001, 1000) == doctest::Approx(3).epsilon(0.001));
  CHECK(find_peak(below(0), 0.001, 10) == 0);
  CHECK(find_peak(below(1e9), 0.001, 10, 1000) <= 1000);
  CHECK_THROWS_AS((void)find_peak(below(1), 0, 10), config_error);
  CHECK_THROWS_AS((void)find_peak(below(1), 0.1, 0), config_error);
}
TEST_CASE("the tuned window is the smallest of those near the best") {
  const std::array<duration, 3> windows{20ms, 5ms, 1ms};
  const auto t = tune_delay(windows, 0.05, [](duration w) {
    return w == 1ms ? 90.0 : w == 5ms ? 96.0 : 100.0;
  });
  CHECK(t.window == 5ms);
  CHECK(t.peak_rps == 96);
  CHECK_THROWS_AS((void)tune_delay({}, 0.05, [](duration) { return 1.0; }), config_error);
}
}  // namespace
}  // namespace cohort::sim::pipeline_simulation_test
