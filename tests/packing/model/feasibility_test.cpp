// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/feasibility.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

#include <set>

namespace cohort::packing::feasibility_test {
namespace {
using test::halves;
using test::unit_model;

TEST_CASE("one model: the least batch that carries its rate in its own latency") {
  const latency_grid g{{unit_model("a", 20)}, halves()};
  gpulet_load l{.model = 0, .rate_rps = 500};
  duty_cycle d = fit(g, 1, slo_rule::own, {&l, 1});
  CHECK(l.batch == 1);
  CHECK(d.least_ms == doctest::Approx(2));
  CHECK(d.most_ms == doctest::Approx(2));  // 1 / r.
  l.rate_rps = 800;                        // 4 requests in 5 ms.
  d = fit(g, 1, slo_rule::own, {&l, 1});
  CHECK(l.batch == 4);
  CHECK(d.least_ms == doctest::Approx(5));
  l.rate_rps = 10;
  d = fit(g, 1, slo_rule::own, {&l, 1});
  CHECK(l.batch == 1);
  CHECK(d.most_ms == doctest::Approx(18));  // SLO - L: too slow to fill a batch.
  l.rate_rps = 890;                         // Above 8 / 9.
  CHECK_FALSE(fit(g, 1, slo_rule::own, {&l, 1}).feasible());
}
TEST_CASE("rule sum lets all wait for the whole cycle's batches, own for one's own alone") {
  // Both with batch 1: D = 4; own: 4 + 2 = 6; sum: 4 + 4 = 8.
  std::vector<gpulet_load> loads{{.model = 0, .rate_rps = 200}, {.model = 1, .rate_rps = 200}};
  const latency_grid seven{{unit_model("a", 7), unit_model("b", 100)}, halves()};
  CHECK(fit(seven, 1, slo_rule::own, loads).feasible());
  CHECK_FALSE(fit(seven, 1, slo_rule::sum, loads).feasible());
  const latency_grid eight{{unit_model("a", 8), unit_model("b", 100)}, halves()};
  const duty_cycle d = fit(eight, 1, slo_rule::sum, loads);
  CHECK(d.least_ms == doctest::Approx(4));
  CHECK(d.most_ms == doctest::Approx(4));
  CHECK_FALSE(fit(eight, 1, slo_rule::sum, {}).feasible());
}
TEST_CASE("a shared gpu-let gives a model what the others leave") {
  const latency_grid g{{unit_model("a", 100), unit_model("b", 100)}, halves()};
  std::vector<gpulet_load> others{{.model = 0, .rate_rps = 100}};
  // b = 7: 8 + 2 = 10 ms with one of the other; b = 8: 9 + 3 = 12 ms with two.
  CHECK(largest_rate(g, 1, slo_rule::own, 1, 1e9, others) == doctest::Approx(700));
  CHECK(largest_rate(g, 1, slo_rule::own, 1, 100, others) == 100);
  CHECK(largest_rate(g, 1, slo_rule::own, 1, 1e9, {}) == doctest::Approx(8000 / 9.0));
  others[0].rate_rps = 880;
  CHECK(largest_rate(g, 1, slo_rule::own, 1, 1e9, others) == 0);
}
TEST_CASE("the smallest size that carries a rate") {
  const latency_grid g{{unit_model("a", 100)}, halves()};
  CHECK(least_size(g, slo_rule::own, 0, 440) == 0);  // Below 8 / 18.
  CHECK(least_size(g, slo_rule::own, 0, 450) == 1);
  CHECK(least_size(g, slo_rule::own, 0, 900) == 2);
}

/// The definition, tried at every breakpoint of b = ceil(r D).
bool feasible_by_enumeration(const latency_grid& g, std::size_t size, slo_rule rule,
                             const std::vector<gpulet_load>& loads) {
  double slo = 1e300;
  for (const gpulet_load& l : loads) slo = std::min(slo, g.slo_ms(l.model));
  std::set<double> breakpoints{slo};
  for (const gpulet_load& l : loads) {
    if (l.rate_rps <= 0) continue;
    for (std::uint32_t k = 1; k <= g.max_batch(l.model); ++k) {
      breakpoints.insert(std::min(slo, k / l.rate_rps * 1e3));
    }
  }
  for (const double at : breakpoints) {
    double sum = 0;
    double duty = at;
    bool possible = true;
    std::vector<double> latency;
    for (const gpulet_load& l : loads) {
      const double b = std::max(1.0, std::ceil(l.rate_rps * 1e-3 * at - 1e-9));
      if (b > g.max_batch(l.model)) {
        possible = false;
        break;
      }
      latency.push_back(g.latency(l.model, size, static_cast<std::uint32_t>(b)));
      sum += latency.back();
    }
    if (!possible) continue;
    for (std::size_t i = 0; i < loads.size(); ++i) {
      const double after = rule == slo_rule::own ? latency[i] : sum;
      duty = std::min(duty, g.slo_ms(loads[i].model) - after);
    }
    if (duty >= sum - 1e-9) return true;
  }
  return false;
}

TEST_CASE("the least fixed point decides as trying every breakpoint does") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 4, seed % 2 == 0), {}};
    int feasible = 0;
    for (int i = 0; i < 100; ++i) {
      CAPTURE(i);
      const std::size_t size = random.below(g.sizes());
      const slo_rule rule = random.one_in(2) ? slo_rule::own : slo_rule::sum;
      std::vector<gpulet_load> loads;
      const std::uint32_t count = 1 + random.below(4U);
      for (std::uint32_t m = 0; m < count; ++m) {
        const double part = random.below(1000U) / 800.0 / count;
        loads.push_back({.model = m, .rate_rps = part * g.capacity_rps(m, size)});
      }
      const bool expected = feasible_by_enumeration(g, size, rule, loads);
      const duty_cycle d = fit(g, size, rule, loads);
      REQUIRE(d.feasible() == expected);
      feasible += expected;
      if (!expected) continue;
      // Both ends of the range of duty cycles keep every promise.
      for (const double duty : {d.least_ms, d.most_ms}) {
        double sum = 0;
        for (const gpulet_load& l : loads) sum += g.latency(l.model, size, l.batch);
        REQUIRE(sum <= duty * (1 + 1e-9));
        for (const gpulet_load& l : loads) {
          REQUIRE(l.rate_rps * 1e-3 * duty <= l.batch * (1 + 1e-8));
          const double after = rule == slo_rule::own ? g.latency(l.model, size, l.batch) : sum;
          REQUIRE(duty + after <= g.slo_ms(l.model) * (1 + 1e-8));
        }
      }
      // The largest rate of one more model is feasible, and a little more is not.
      std::vector<gpulet_load> others{loads.begin() + 1, loads.end()};
      const double most = largest_rate(g, size, rule, 0, 1e9, others);
      REQUIRE(most >= loads[0].rate_rps * (1 - 1e-9));
      others.push_back({.model = 0, .rate_rps = most});
      REQUIRE(fit(g, size, rule, others).feasible());
      others.back().rate_rps = most * 1.0001;
      REQUIRE_FALSE(fit(g, size, rule, others).feasible());
    }
    CHECK(feasible > 0);
  }
}
}  // namespace
}  // namespace cohort::packing::feasibility_test
