// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workloads drawn at random, so that a policy can be tuned on some and judged on others.
#pragma once

#include <cohort/sim/workload.hpp>

#include <cstdint>
#include <string>

namespace cohort::bench {

/// A workload and what it is, in words.
struct drawn_workload {
  std::string name;
  sim::workload workload;
};

/// The workload of this seed: 1 to 64 devices (the logarithm is uniform); copies of one model of a
/// zoo, 2 to 6 of its models, or up to all; SLO times 1, 1.5 or 2; Poisson (half of the draws),
/// gamma of shape 0.5 or 0.25, or constant gaps; equal or Zipf popularity.
[[nodiscard]] drawn_workload draw_workload(std::uint64_t seed);

}  // namespace cohort::bench
