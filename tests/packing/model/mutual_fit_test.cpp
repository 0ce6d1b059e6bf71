// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/mutual_fit.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>

#include <packing/random_demand.hpp>

namespace cohort::packing::mutual_fit_test {
namespace {

/// Only the neighbour's use of the cache counts: f = 1 + l2 other.
constexpr interference_model by_l2{.l2_other = 1, .constant = 1};

TEST_CASE("two halves slow each other by what the other's batch uses") {
  // On a half L(1) = 4 ms; a batch of 1 uses 0.2 of the cache on the whole device, 0.1 on half.
  const latency_grid g{{test::unit_model("a", 100), test::unit_model("b", 100)}, test::halves()};
  const mutual_fit fits{g, by_l2};
  std::vector<neighbour> device{{.size = 0, .loads = {{.model = 0, .rate_rps = 10}}},
                                {.size = 0, .loads = {{.model = 1, .rate_rps = 20}}}};
  REQUIRE(fits(slo_rule::own, device));
  CHECK(device[0].loads[0].batch == 1);
  CHECK(device[0].duty.least_ms == doctest::Approx(4.4));
  CHECK(device[0].duty.most_ms == doctest::Approx(95.6));  // Of SLO − L; b / r is 100.
  CHECK(device[1].duty.most_ms == doctest::Approx(50));    // b / r.
  // Alone: as `fit`.
  device[1].loads.clear();
  REQUIRE(fits(slo_rule::own, device));
  CHECK(device[0].duty.least_ms == doctest::Approx(4));
}
TEST_CASE("models without usage slow each other as measured") {
  model_profile a = test::unit_model("a", 100);
  model_profile b = test::unit_model("b", 100);
  a.usage.clear();
  a.beside = {1, 1.5};
  b.beside = {1.25, 1};
  const latency_grid g{{a, b}, test::halves()};
  const mutual_fit fits{g, interference_model{}};
  std::vector<neighbour> device{{.size = 0, .loads = {{.model = 0, .rate_rps = 10}}},
                                {.size = 0, .loads = {{.model = 1, .rate_rps = 20}}}};
  REQUIRE(fits(slo_rule::own, device));
  CHECK(device[0].duty.least_ms == doctest::Approx(6));  // L(1) = 4 ms on a half.
  CHECK(device[1].duty.least_ms == doctest::Approx(5));
}
TEST_CASE("a neighbour that grows its batch takes the room of the other") {
  // a alone on a half: batches of 8 in 18 ms carry 444 a second. Beside b with batches of b, which
  // use (0.2 + 0.4 (b − 1) / 7) / 2, both at the same rate: batches of 5 take 14.57 ms and carry
  // 343 a second, of 6 take 17.4 ms and carry 344.8, and larger ones carry less.
  const latency_grid g{{test::unit_model("a", 100), test::unit_model("b", 100)}, test::halves()};
  const mutual_fit fits{g, by_l2};
  std::vector<neighbour> device{{.size = 0, .loads = {{.model = 0, .rate_rps = 344}}},
                                {.size = 0, .loads = {{.model = 1, .rate_rps = 344}}}};
  REQUIRE(fits(slo_rule::own, device));
  CHECK(device[0].loads[0].batch == 6);
  CHECK(device[1].loads[0].batch == 6);
  CHECK(device[0].duty.least_ms == doctest::Approx(17.4));
  device[0].loads[0].rate_rps = 345;
  CHECK_FALSE(fits(slo_rule::own, device));
  device[1].loads[0].rate_rps = 10;  // A batch of 1 uses 0.1: 8 of a in 19.8 ms.
  CHECK(fits(slo_rule::own, device));
}
TEST_CASE("a padded grid is refused") {
  const latency_grid g{{test::unit_model("a", 100)}, {.sizes = {50, 100}, .pad_for = by_l2}};
  CHECK_THROWS_AS((mutual_fit{g, by_l2}), config_error);
}

/// Whether any batches at all keep the promises of two gpu-lets of one model each: tries them all.
bool any_batches(const latency_grid& g, const interference_model& c, slo_rule rule,
                 const std::vector<neighbour>& device) {
  const packing_problem p{.gpus = 1,
                          .rule = rule,
                          .rates_rps = {device[0].loads[0].rate_rps, device[1].loads[0].rate_rps}};
  for (std::uint32_t b0 = 1; b0 <= g.max_batch(0); ++b0) {
    for (std::uint32_t b1 = 1; b1 <= g.max_batch(1); ++b1) {
      plan made;
      const std::uint32_t batches[] = {b0, b1};
      for (std::uint32_t i = 0; i < 2; ++i) {
        const std::uint32_t pct = g.size_pct(device[i].size);
        const std::uint32_t other_pct = g.size_pct(device[1 - i].size);
        const double latency = g.measured(i)(batches[i], pct) *
                               c.factor(usage_of(g.profile(i), batches[i], pct),
                                        usage_of(g.profile(1 - i), batches[1 - i], other_pct));
        made.push_back(
            {.gpu = device_id{0},
             .size = device_share{pct},
             .duty_ms = std::max(latency, 1e-6),
             .models = {{.model = model_id{i}, .batch = batches[i], .rate_rps = p.rates_rps[i]}}});
      }
      if (verify(g, p, made, c).empty()) return true;
    }
  }
  return false;
}
TEST_CASE("it admits exactly what some batches can carry, where more load is more use") {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::vector<model_profile> models = test::random_profiles(random, 2);
    for (model_profile& m : models) {  // Usage that grows with the batch.
      double l2 = 0.05;
      double memory = 0.05;
      for (usage_sample& s : m.usage) {
        s.l2 = l2 += random.below(100U) / 1000.0;
        s.memory = memory += random.below(100U) / 1000.0;
      }
    }
    const latency_grid g{models, {.sizes = {40, 60, 100}}};
    const interference_model c{.l2_self = random.below(10U) / 10.0,
                               .l2_other = random.below(20U) / 10.0,
                               .memory_self = random.below(10U) / 10.0,
                               .memory_other = random.below(20U) / 10.0,
                               .constant = 0.9};
    const slo_rule rule = random.one_in(2) ? slo_rule::own : slo_rule::sum;
    std::vector<neighbour> device;
    for (std::uint32_t i = 0; i < 2; ++i) {
      const double part = (400 + random.below(700U)) / 1000.0;
      device.push_back(
          {.size = i, .loads = {{.model = i, .rate_rps = part * g.capacity_rps(i, i) + 1e-3}}});
    }
    const bool fits = mutual_fit{g, c}(rule, device);
    CHECK(fits == any_batches(g, c, rule, device));
    ++(fits ? feasible : infeasible);
  }
  CHECK(feasible > 30);
  CHECK(infeasible > 30);
}

}  // namespace
}  // namespace cohort::packing::mutual_fit_test
