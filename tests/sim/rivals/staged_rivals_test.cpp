// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/rivals/staged_rivals.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/diversity.hpp>
#include <cohort/batching/pipeline.hpp>
#include <cohort/sim/staged/pipeline_simulation.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::sim::staged_rivals_test {
namespace {
using namespace batching;

double uniform(test::random_source& random) {
  return (random.below(1U << 20U) + 0.5) / (1U << 20U);
}

/// Up to six stages that batch for nothing up to some size, and then pay for each request.
stage_profile random_profile(test::random_source& random) {
  const std::uint32_t batch_max = std::uint32_t{4} << (2 * random.below(3U));  // 4, 16, 64.
  std::vector<std::vector<stage_point>> stages(1 + random.below(6U));
  for (auto& stage : stages) {
    const double fixed = std::pow(10, random.below(3U) - 1.0) * uniform(random);
    const double each = std::pow(10, random.below(3U) - 2.0) * uniform(random);
    const std::uint32_t free = std::uint32_t{1} << (2 * random.below(3U));
    for (std::uint32_t b = 1; b <= batch_max; b *= 2) {
      const double more = b > free ? each * (b - free) : 0;
      stage.push_back({.batch = b, .time = from_ms(std::max(0.001, fixed + more))});
    }
  }
  return {std::move(stages), batch_max};
}
double mean_ms(const stage_profile& p, const std::vector<staged_arrival>& arrivals,
               const auto& policy) {
  const pipeline_options options{.buffer_sets = 2, .entry = entry_rule::idle};
  using policy_type = std::decay_t<decltype(policy)>;
  return run_staged(
             p, arrivals, {},
             [&](staged_counts c) {
               return pipeline<policy_type, staged_counts>{p, options, policy, c};
             },
             [](time_point) {})
      .mean_ms();
}

TEST_CASE(
    "planned diversity is hardly ever slower than zero-batch, whatever the profile and load") {
  double gains = 0;
  int slower = 0;
  int runs = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const stage_profile p = random_profile(random);
    double peak = 0;
    for (const std::uint32_t b : p.sizes()) {
      peak = std::max(peak, b / to_ms(p.total(b, 0)));
    }
    for (const double load : {0.3, 0.6, 0.9}) {
      CAPTURE(load);
      std::vector<staged_arrival> arrivals;
      double at = 0;
      for (int i = 0; i < 3000; ++i) {
        at -= std::log(uniform(random)) / (peak * load);
        arrivals.push_back({time_point{} + from_ms(at)});
      }
      const double zero = mean_ms(p, arrivals, whole_batch{{p.batch_max()}});
      const double planned = mean_ms(p, arrivals, diversity{p});
      CHECK(planned <= 1.1 * zero);
      slower += planned > 1.02 * zero ? 1 : 0;
      gains += 1 - planned / zero;
      ++runs;
    }
  }
  MESSAGE(slower << " of " << runs << " are slower by over 2 %; mean gain " << gains / runs);
  CHECK(slower <= 3);
  CHECK(gains / runs > 0.1);
}

}  // namespace
}  // namespace cohort::sim::staged_rivals_test
