// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random models to spread over sub-clusters.
#pragma once

#include <cohort/packing/subclusters/subcluster.hpp>

#include <cmath>
#include <cstdint>
#include <support/random_source.hpp>

namespace cohort::packing::test {

inline double uniform(cohort::test::random_source& random) {
  return random.below(1'000'000U) / 1e6;
}

/// Rates are exponential, memories uniform; caps are `slack` times the average.
inline subcluster_problem random_subclusters(cohort::test::random_source& random,
                                             std::uint32_t models, std::uint32_t count,
                                             double slack) {
  subcluster_problem p{.count = count};
  for (std::uint32_t i = 0; i < models; ++i) {
    p.models.push_back({.rate_rps = -100 * std::log(1 - uniform(random)),
                        .static_mb = 10 + 590 * uniform(random),
                        .dynamic_mb = 5 + 95 * uniform(random)});
  }
  p.rate_cap_rps = p.average_rate() * slack;
  p.memory_mb = p.average_memory() * slack + 100;
  return p;
}

}  // namespace cohort::packing::test
