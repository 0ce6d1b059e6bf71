// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/configuration.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::configuration_test {
namespace {

bool covered(const configuration_set& set, std::size_t size, const std::vector<double>& rates) {
  for (std::size_t c = 0; c < set.count(size); ++c) {
    bool enough = true;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      enough = enough && rates[set.models()[i]] <= set.rates(size, c)[i] * (1 + 1e-9);
    }
    if (enough) return true;
  }
  return false;
}

TEST_CASE("configurations of one model are its best rate") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const configuration_set set{g, slo_rule::own, {0}};
  CHECK(set.complete());
  REQUIRE(set.count(1) == 1);
  CHECK(set.rates(1, 0)[0] == doctest::Approx(8000 / 9.0));
  CHECK(set.needed_size(1, 0) == 1);
}
TEST_CASE("a gpu-let carries rates if and only if a configuration covers them") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 3, seed % 2 == 0), {}};
    const slo_rule rule = seed % 3 == 0 ? slo_rule::sum : slo_rule::own;
    const configuration_set set{g, rule, {0, 1, 2}};
    REQUIRE(set.complete());
    int feasible = 0;
    for (int i = 0; i < 200; ++i) {
      CAPTURE(i);
      const std::size_t size = random.below(g.sizes());
      std::vector<double> rates(3, 0.0);
      std::vector<gpulet_load> loads;
      for (std::uint32_t m = 0; m < 3; ++m) {
        if (random.one_in(3)) continue;
        rates[m] = random.below(1000U) / 2000.0 * g.capacity_rps(m, size);
        if (rates[m] > 0) loads.push_back({.model = m, .rate_rps = rates[m]});
      }
      if (loads.empty()) continue;
      // Places may hold smaller gpu-lets too.
      bool expected = false;
      for (std::size_t s = 0; s <= size; ++s)
        expected = expected || fit(g, s, rule, loads).feasible();
      feasible += expected;
      REQUIRE(covered(set, size, rates) == expected);
    }
    CHECK(feasible > 0);
  }
}
TEST_CASE("no configuration is covered by another, and each needs the size that it names") {
  cohort::test::random_source random{3};
  const latency_grid g{test::random_profiles(random, 3, true), {}};
  const configuration_set set{g, slo_rule::own, {0, 1, 2}};
  for (std::size_t s = 0; s < g.sizes(); ++s) {
    for (std::size_t a = 0; a < set.count(s); ++a) {
      std::vector<gpulet_load> loads;
      for (std::size_t i = 0; i < 3; ++i) {
        if (set.rates(s, a)[i] > 0) {
          loads.push_back({.model = set.models()[i], .rate_rps = set.rates(s, a)[i]});
        }
      }
      CHECK(fit(g, set.needed_size(s, a), slo_rule::own, loads).feasible());
      for (std::size_t b = 0; b < set.count(s); ++b) {
        if (a == b) continue;
        bool below = true;
        for (std::size_t i = 0; i < 3; ++i)
          below = below && set.rates(s, a)[i] <= set.rates(s, b)[i];
        CHECK_FALSE(below);
      }
    }
  }
}
TEST_CASE("a set that was cut says so") {
  cohort::test::random_source random{4};
  const latency_grid g{test::random_profiles(random, 4), {}};
  CHECK_FALSE(configuration_set{g, slo_rule::own, {0, 1, 2, 3}, 5}.complete());
}
TEST_CASE("the enumeration asks whether to stop, and then says that it was cut") {
  cohort::test::random_source random{4};
  const latency_grid g{test::random_profiles(random, 4), {}};
  int asked = 0;
  const configuration_set cut{
      g, slo_rule::own, {0, 1, 2, 3}, 20'480, [&asked] { return ++asked > 0; }};
  CHECK(asked > 0);
  CHECK_FALSE(cut.complete());
}
TEST_CASE("made for one demand, a set is smaller and serves that demand as well") {
  std::size_t all_count = 0;
  std::size_t limited_count = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 3, seed % 4 == 0), {}};
    const slo_rule rule = seed % 3 == 0 ? slo_rule::sum : slo_rule::own;
    const configuration_set all{g, rule, {0, 1, 2}};
    std::vector<double> useful;
    for (std::size_t m = 0; m < 3; ++m) {
      useful.push_back(g.capacity_rps(m, g.sizes() - 1) * random.below(1000U) / 1500.0);
    }
    const configuration_set some{g, rule, {0, 1, 2}, 20'000'000, {}, useful};
    REQUIRE(some.complete());
    CHECK(some.limited());
    CHECK(some.serves(useful));
    REQUIRE(some.models() == all.models());
    const auto cut = [&](std::span<const double> rates, std::size_t i) {
      return std::min(rates[i], useful[all.models()[i]]);
    };
    for (std::size_t s = 0; s < g.sizes(); ++s) {
      all_count += all.count(s);
      limited_count += some.count(s);
      for (std::size_t c = 0; c < all.count(s); ++c) {
        bool found = false;
        for (std::size_t k = 0; k < some.count(s) && !found; ++k) {
          found = true;
          for (std::size_t i = 0; i < 3; ++i) {
            found = found && some.rates(s, k)[i] >= cut(all.rates(s, c), i) * (1 - 1e-9);
          }
        }
        REQUIRE(found);
      }
    }
    for (double& r : useful) r += 1;
    CHECK_FALSE(some.serves(useful));
    CHECK(all.serves(useful));
  }
  CHECK(2 * limited_count < all_count);
}
}  // namespace
}  // namespace cohort::packing::configuration_test
