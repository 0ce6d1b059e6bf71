// SPDX-License-Identifier: Apache-2.0
/// @file
/// Workloads drawn at random, so that a policy can be tuned on some and judged on others. The same
/// on every platform for one seed.
#pragma once

#include <cohort/sim/workload.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cohort::bench {

/// A workload and what it is, in words.
struct drawn_workload {
  std::string name;
  sim::workload workload;
};

/// The workload of this seed: 1 to 64 devices (the logarithm is uniform); copies of one model of a
/// zoo, 2 to 6 of its models, or up to all; SLO times 1, 1.5 or 2; Poisson (half of the draws),
/// gamma of shape 0.5 or 0.25, or constant gaps; equal or Zipf popularity. What a seed draws never
/// changes, since results name these seeds, and some were used for tuning; wider draws are
/// `draw_wide_workload`.
[[nodiscard]] drawn_workload draw_workload(std::uint64_t seed);

/// How machines differ from their profiles in half of the wide draws; the others are clean.
enum class noise_class : std::uint8_t {
  clean,
  slight,  ///< sigma 0.05.
  biased,  ///< sigma 0.1, bias 1.2 with a spread of 0.2, 0.3 % of batches five times as long.
  wide,    ///< sigma 0.2.
};
inline constexpr std::size_t noise_classes = 4;

/// Its name in results: "clean", "sigma .05", ...
[[nodiscard]] std::string_view name_of(noise_class n) noexcept;

struct wide_workload : drawn_workload {
  noise_class noise = noise_class::clean;
};

/// The wide workload of this seed: 1 to 64 devices and 1 to 40 models (the logarithms are uniform).
/// Models are of the zoo of the A100, of that of the 1080Ti, affine, or each of any of these; in a
/// quarter of the draws all are one. An affine one has a β/α of 0.05 to 200, an ℓ(1) of 2 to 30 ms
/// but such that α is at least 0.05 ms (logarithms uniform), and the SLO that the zoos' rule gives:
/// 2 ℓ(4), at least 20 ms. SLOs times 1 to 2; Poisson arrivals (half of the draws), constant gaps,
/// or gamma gaps with a coefficient of variation of 1.2 to 4; equal (two thirds) or Zipf
/// popularity. Clean in half of the draws, each other `noise_class` in a sixth. Rates of models
/// differ by popularity alone: of 140 000 requests the rarest model of any draw gets a thousand.
[[nodiscard]] wide_workload draw_wide_workload(std::uint64_t seed);

}  // namespace cohort::bench
