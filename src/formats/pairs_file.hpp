// SPDX-License-Identifier: Apache-2.0
/// @file
/// pairs.csv: how long batches took alone and next to others, as `cohort interference` measured it.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile_check.hpp"
#include "text.hpp"

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

/// The factors that may be true: no neighbour makes a batch ten times as fast, and one that makes
/// it a hundred times slower is a slip of units.
inline constexpr number_range believable_factors{.low = 0.1, .high = 100};

/// Whether the factor may be true and is within four times of `beside_ms` / `alone_ms`, or up to
/// eight as far as solo runs differ: it is the median over turns, which machines with slow phases
/// set apart from these two medians.
[[nodiscard]] bool is_believable(const measured_neighbour& r) noexcept;

/// Of each side of each case one row, all of one device and believable.
/// @param models Those of the folder, by which rows are numbered.
/// @param repairs Gets a line where rows have more noise than value; null: nobody asks.
/// @throws input_error If the text is bad.
[[nodiscard]] std::vector<measured_neighbour> parse_pairs(
    const std::string& file, std::string_view text, std::span<const packing::model_profile> models,
    warnings* repairs = nullptr);
/// The same of a file. @throws input_error If it cannot be read or is bad.
[[nodiscard]] std::vector<measured_neighbour> read_pairs(
    const std::string& file, std::span<const packing::model_profile> models,
    warnings* repairs = nullptr);
[[nodiscard]] std::string pairs_csv(std::span<const measured_neighbour> rows,
                                    std::span<const packing::model_profile> models);

/// Sets `beside` of every model: the largest factor measured next to each other model, at least 1.
/// For a pair that was never measured, the largest that either model has suffered or inflicted; if
/// neither was measured at all, the largest there is. @returns A sentence that names what was so
/// guessed of pairs that are planned by it, since a usage of theirs is not known; empty if nothing.
std::string plan_by_pairs(std::vector<packing::model_profile>& models,
                          std::span<const measured_neighbour> rows);

/// A factor that a fit tells.
struct told_factor {
  double factor;
  std::string of;  ///< "a at size 20 beside b at size 50".
};

/// A factor beyond `believable_factors` that the fit tells of models whose usage is known, on two
/// of their sizes that fit a device; before it is raised to 1. Nothing if there is none.
[[nodiscard]] std::optional<told_factor> unbelievable_factor(
    const packing::interference_model& fit, std::span<const packing::model_profile> models);

}  // namespace cohort::formats
