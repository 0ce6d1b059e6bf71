// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/work_bound.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/packers/portfolio.hpp>

#include <packing/random_demand.hpp>

#include <cmath>
#include <limits>

namespace cohort::packing::work_bound_test {
namespace {

TEST_CASE("one model is bounded by its largest throughput on the best way to cut a device") {
  // Batches of 8: 888.9 a second on the whole device, half of that on each half of it.
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  CHECK(work_bound(g, {.gpus = 3, .rates_rps = {8000 / 9.0}}) == doctest::Approx(3));
  // Halves alone, one on a device: the rest of it is of no use.
  const latency_grid half{{test::unit_model("a", 100)}, {.sizes = {50}, .max_gpulets_per_gpu = 1}};
  CHECK(work_bound(half, {.gpus = 3, .rates_rps = {8000 / 9.0}}) == doctest::Approx(1.5));
  CHECK(work_bound(g, {.gpus = 3, .rates_rps = {0}}) == std::numeric_limits<double>::infinity());
  // No batch keeps an SLO of 3.9 ms: one of 1 takes 2, and comes up to 2 later.
  const latency_grid tight{{test::unit_model("a", 3.9)}, test::halves()};
  CHECK(work_bound(tight, {.gpus = 3, .rates_rps = {1}}) == 0);
  CHECK_THROWS_AS(static_cast<void>(work_bound(g, {.gpus = 1, .rates_rps = {1, 2}})), config_error);
}
TEST_CASE("sizes suit some models more than others, and the bound knows") {
  // a: 100 a second on each half; b: 100 on the whole device, and nothing on less.
  const model_profile a{.name = "a", .slo_ms = 40, .latency = {{1, 50, 10}, {1, 100, 10}}};
  const model_profile b{.name = "b", .slo_ms = 40, .latency = {{1, 50, 30}, {1, 100, 10}}};
  const latency_grid g{{a, b}, test::halves()};
  CHECK(work_bound(g, {.gpus = 1, .rates_rps = {100, 0}}) == doctest::Approx(2).epsilon(1e-5));
  CHECK(work_bound(g, {.gpus = 1, .rates_rps = {0, 100}}) == doctest::Approx(1).epsilon(1e-5));
  // 2 devices for b, 1 for a: 1 / (2 + 1) of it on one.
  CHECK(work_bound(g, {.gpus = 1, .rates_rps = {200, 200}}) ==
        doctest::Approx(1 / 3.0).epsilon(1e-5));
}
TEST_CASE("few requests cannot fill batches: their work is what it is in the longest cycle") {
  // L(b) = 10 + b: one request in 100 ms at most has a batch to itself. With an SLO of 111 the duty
  // cycle is at most 100 beside a batch of 1, so 11 ms of every 100: 9 such models on a device.
  std::vector<model_profile> many;
  packing_problem p{.gpus = 1};
  for (int i = 0; i < 10; ++i) {
    many.push_back(
        {.name = "m" + std::to_string(i), .slo_ms = 111, .latency = {{1, 100, 11}, {32, 100, 42}}});
    p.rates_rps.push_back(1);
  }
  const latency_grid g{many, {.sizes = {100}, .max_gpulets_per_gpu = 1}};
  CHECK(work_bound(g, p) < 1);
  CHECK(portfolio{}(g, p).status != packing_status::feasible);
  p.rates_rps[9] = 0;
  CHECK(work_bound(g, p) > 1);
  CHECK(portfolio{}(g, p).schedulable());
}
TEST_CASE("what is served is never above the bound; with more devices the bound grows with them") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 1 + random.below(6U), seed % 3 == 0),
                         {.max_gpulets_per_gpu = 1 + random.below(4U)}};
    packing_problem p = test::random_problem(random, g, 1 + random.below(3U), 2.5);
    p.rates_rps[0] += 1;
    const double bound = work_bound(g, p);
    if (portfolio{}(g, p).schedulable()) CHECK(bound >= 1 - 1e-9);
    const double first = detail::size_prices{g, p}.solve();
    CHECK(bound <= first * (1 + 1e-9));
    if (!std::isfinite(first)) continue;
    p.gpus *= 7;
    CHECK(detail::size_prices{g, p}.solve() == doctest::Approx(7 * first).epsilon(1e-4));
  }
}
}  // namespace
}  // namespace cohort::packing::work_bound_test
