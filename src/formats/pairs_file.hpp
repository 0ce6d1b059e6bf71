// SPDX-License-Identifier: Apache-2.0
/// @file
/// pairs.csv: how long batches took alone and next to others, as `cohort interference` measured it.
#pragma once

#include <cohort/packing/model/profile.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::formats {

/// A batch of a model on a partition.
struct placed_batch {
  std::size_t model = 0;  ///< Its number in the folder.
  std::uint32_t batch = 1;
  std::uint32_t size_pct = 100;

  auto operator<=>(const placed_batch&) const = default;
};

/// One row: what one side of a pair bore.
struct measured_neighbour {
  placed_batch self;
  placed_batch other;
  double alone_ms = 0;   ///< Median of the turns.
  double beside_ms = 0;  ///< Likewise.
  double factor = 1;     ///< Median of the turns' own factors; below 1 only by noise.
  double noise = 0;  ///< Median of how much two solo runs of neighbouring turns differ, relative.
  std::uint32_t turns = 1;
  std::string device{};  ///< Where, and by which clock.
};

/// @param models Those of the folder, by which rows are numbered.
/// @throws input_error If the file cannot be read or is bad.
[[nodiscard]] std::vector<measured_neighbour> read_pairs(
    const std::string& file, std::span<const packing::model_profile> models);
[[nodiscard]] std::string pairs_csv(std::span<const measured_neighbour> rows,
                                    std::span<const packing::model_profile> models);

/// Sets `beside` of every model: the largest factor measured next to each other model, at least 1.
/// For a pair that was never measured, the largest that either model has suffered or inflicted; if
/// neither was measured at all, the largest there is. @returns A sentence that names what was so
/// guessed of pairs that are planned by it, since a usage of theirs is not known; empty if nothing.
std::string plan_by_pairs(std::vector<packing::model_profile>& models,
                          std::span<const measured_neighbour> rows);

}  // namespace cohort::formats
