// SPDX-License-Identifier: Apache-2.0
/// @file
/// Staged models drawn at random: shapes of latency, grids, noise and sizes as users measure them.
#pragma once

#include <formats/staged_model_file.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::bench {

/// A model, and what its requests are like.
struct drawn_staged_model {
  formats::staged_model_spec spec;     ///< All policies; as MODEL.json has them by default.
  std::vector<std::uint32_t> lengths;  ///< Buckets of requests; empty without sizes.
  std::string shape;
  std::string grid;
  double noise = 0;  ///< Largest part by which a measurement is off.
};

/// What a draw is of: part of the seed, so that a share of each is known.
enum class latency_shape : std::uint8_t { flat_then_linear, affine, concave, stepped, mixed };

/// The same for the same seed, whatever the library.
[[nodiscard]] drawn_staged_model draw_staged_model(std::uint64_t seed);
/// Affine stages, all equal, no sizes, no noise, every batch size to 32 measured.
[[nodiscard]] drawn_staged_model draw_affine_model(std::uint64_t seed);

}  // namespace cohort::bench
