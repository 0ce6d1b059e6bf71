// SPDX-License-Identifier: Apache-2.0
/// @file
/// pairs.csv: times of batches alone and next to others, as measured by `cohort interference`.
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
  std::size_t model = 0;  ///< Index in the folder.
  std::uint32_t batch = 1;
  std::uint32_t size_pct = 100;

  auto operator<=>(const placed_batch&) const = default;
};

/// One row: the measurements of one side of a pair.
struct measured_neighbour {
  placed_batch self;
  placed_batch other;
  double alone_ms = 0;   ///< Median of the turns.
  double beside_ms = 0;  ///< Likewise.
  double factor = 1;     ///< Median of the turns' own factors; below 1 only by noise.
  double noise = 0;      ///< Median relative difference of solo runs in adjacent turns.
  std::uint32_t turns = 1;
  std::string device{};  ///< The device, and the clock used.
};

/// Believable factors: a neighbour does not make a batch ten times as fast, and a hundredfold
/// slowdown is an error of units.
inline constexpr number_range believable_factors{.low = 0.1, .high = 100};

/// Whether the factor is believable and within four times `beside_ms` / `alone_ms`, or up to eight
/// if solo runs vary as much: it is the median over turns, and may differ from the ratio of medians
/// on machines with slow phases.
[[nodiscard]] bool is_believable(const measured_neighbour& r) noexcept;

/// Parses rows: one for each side of each case, all for one device and believable.
/// @param models Those of the folder, in order.
/// @param repairs Receives a line about rows with more noise than value; null: discarded.
/// @throws input_error If the text is bad.
[[nodiscard]] std::vector<measured_neighbour> parse_pairs(
    const std::string& file, std::string_view text, std::span<const packing::model_profile> models,
    warnings* repairs = nullptr);
/// Reads a file likewise. @throws input_error If it cannot be read or is bad.
[[nodiscard]] std::vector<measured_neighbour> read_pairs(
    const std::string& file, std::span<const packing::model_profile> models,
    warnings* repairs = nullptr);
[[nodiscard]] std::string pairs_csv(std::span<const measured_neighbour> rows,
                                    std::span<const packing::model_profile> models);

/// Sets `beside` of every model: the largest factor measured next to each other model, at least 1.
/// For an unmeasured pair, the largest that either model has suffered or inflicted; if neither was
/// measured, the overall largest. @returns A sentence about guesses for pairs that are planned by
/// them, since a usage is unknown; else empty.
std::string plan_by_pairs(std::vector<packing::model_profile>& models,
                          std::span<const measured_neighbour> rows);

/// A factor predicted by a fit.
struct told_factor {
  double factor;
  std::string of;  ///< "a at size 20 beside b at size 50".
};

/// A factor outside `believable_factors` that the fit predicts for models with known usage, on two
/// of their sizes that fit a device; before it is raised to 1. Nothing if there is none.
[[nodiscard]] std::optional<told_factor> unbelievable_factor(
    const packing::interference_model& fit, std::span<const packing::model_profile> models);

}  // namespace cohort::formats
