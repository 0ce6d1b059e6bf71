// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/gpulet_worth.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::detail::gpulet_worth_test {
namespace {

/// Every batch vector.
double most_by_trying(const latency_grid& g, slo_rule rule, std::size_t size,
                      const std::vector<double>& prices, const std::vector<double>& need) {
  double most = 0;
  std::vector<std::uint32_t> b(g.models(), 0);
  for (;;) {
    std::size_t i = 0;
    while (i < b.size() && b[i] == g.max_batch(i)) b[i++] = 0;
    if (i == b.size()) return most;
    ++b[i];
    double sum = 0;
    for (std::size_t m = 0; m < b.size(); ++m) sum += b[m] > 0 ? g.latency(m, size, b[m]) : 0;
    double worth = 0;
    bool kept = true;
    for (std::size_t m = 0; m < b.size(); ++m) {
      if (b[m] == 0) continue;
      const double after = rule == slo_rule::own ? g.latency(m, size, b[m]) : sum;
      kept = kept && sum + after <= g.slo_ms(m);
      worth += prices[m] * std::min(b[m] / sum * 1e3, need[m]);
    }
    if (kept) most = std::max(most, worth);
  }
}

TEST_CASE("nothing on a gpu-let is worth more than is said, and what is found is worth it") {
  int shared = 0;
  double quick = 0;
  int cases = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    std::vector<model_profile> profiles = test::random_profiles(random, 3, seed % 4 == 0);
    for (model_profile& m : profiles) {
      std::erase_if(m.latency, [](const latency_sample& s) { return s.batch > 8; });
    }
    const latency_grid g{std::move(profiles), {}};
    const slo_rule rule = seed % 3 == 0 ? slo_rule::sum : slo_rule::own;
    std::vector<double> prices;
    std::vector<double> need;
    for (std::size_t m = 0; m < 3; ++m) {
      const double alone = g.capacity_rps(m, g.sizes() - 1);
      prices.push_back((0.5 + random.below(1000U) / 1000.0) / std::max(alone, 1.0));
      need.push_back(alone * (0.05 + random.below(1000U) / 1000.0));
    }
    const std::vector<std::uint32_t> models{0, 1, 2};
    const std::size_t size = random.below(static_cast<std::uint32_t>(g.sizes()));
    const double most = most_by_trying(g, rule, size, prices, need);
    shared_gpulet share{g, rule, models};
    const priced_gpulet first = share(size, prices, need);
    CHECK(first.worth <= most * (1 + 1e-9));
    gpulet_worth worth{g, rule, models};
    const gpulet_worth::answer a = worth(size, prices, need, first);
    REQUIRE(a.most >= most * (1 - 1e-9));
    CHECK(a.most <= most * 1.002 + 1e-12);
    CHECK(a.best.worth <= most * (1 + 1e-9));
    CHECK(a.best.worth >= first.worth);
    shared += a.best.loads.size() > 1;
    // Cut early, it is still a bound.
    for (const std::uint32_t nodes : {1U, 2U, 4U, 8U}) {
      CHECK(worth(size, prices, need, {}, 1e-4, nodes).most >= most * (1 - 1e-9));
    }
    // What is found can be carried.
    std::vector<gpulet_load> loads = a.best.loads;
    if (!loads.empty()) CHECK(fit(g, size, rule, loads).feasible());
    if (most <= 0) continue;
    quick += first.worth / most;
    ++cases;
  }
  CHECK(shared > 25);
  CHECK(quick / cases > 0.97);
}
}  // namespace
}  // namespace cohort::packing::detail::gpulet_worth_test
