// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a server keeps for its next start: profiles it has measured, settings it has found best.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats {

/// What a kept value was found for: names and values, in order. The value holds where all are the
/// same; none is empty.
using start_key = std::vector<std::pair<std::string, std::string>>;

/// How long batches of one size took.
struct kept_point {
  std::uint32_t batch = 1;
  double median_ms = 0;
  double least_ms = 0;  ///< Of all runs, without the turns of other programs if they are known.
  friend bool operator==(const kept_point&, const kept_point&) = default;
};

/// A measured model.
struct kept_profile {
  start_key key;
  std::vector<kept_point> points;  ///< By rising batch; not empty.
};

/// How long one operator of a model took.
struct kept_operator_time {
  std::uint32_t bucket = 0;  ///< Position of the input size it was padded to.
  std::uint32_t op = 0;      ///< Position in the model.
  std::uint32_t batch = 1;
  double ms = 0;
  friend bool operator==(const kept_operator_time&, const kept_operator_time&) = default;
};

/// How long a row of a pipeline took beside its stages.
struct kept_row_time {
  std::uint32_t batch = 1;
  double ms = 0;
  friend bool operator==(const kept_row_time&, const kept_row_time&) = default;
};

/// What a pipeline of a model is cut by.
struct kept_stages {
  start_key key;
  /// By bucket, operator and batch, each rising: for all buckets the same operators and batches.
  std::vector<kept_operator_time> operators;
  std::vector<kept_row_time> rows;  ///< By rising batch; not empty.
  double hand_over_ms = 0;
};

/// What a scheduler that tunes itself decided by.
struct kept_settings {
  start_key key;
  deferred::settings settings;
};

/// JSON of version 1, which `parse_kept_profile` reads:
/// { "format": "cohort profile", "version": 1, "key": {"model": "lenet", ...},
///   "points": [ {"batch": 1, "median_ms": 0.05, "least_ms": 0.049} ] }
[[nodiscard]] std::string write_kept(const kept_profile& p);
/// The same for stages:
/// { "format": "cohort stages", "version": 1, "key": {...},
///   "operators": [ {"bucket": 0, "op": 0, "batch": 1, "ms": 0.05} ],
///   "rows": [ {"batch": 1, "ms": 0.02} ], "hand_over_ms": 0.01 }
[[nodiscard]] std::string write_kept(const kept_stages& s);
/// The same for settings:
/// { "format": "cohort settings", "version": 1, "key": {...}, "window": "brief", "quantile": 0.9 }
[[nodiscard]] std::string write_kept(const kept_settings& s);

/// @param file Named in errors.
/// @throws input_error If it is not a profile of version 1.
[[nodiscard]] kept_profile parse_kept_profile(const std::string& file, std::string_view text);
/// @throws input_error If these are not stages of version 1.
[[nodiscard]] kept_stages parse_kept_stages(const std::string& file, std::string_view text);
/// @throws input_error If these are not settings of version 1.
[[nodiscard]] kept_settings parse_kept_settings(const std::string& file, std::string_view text);

/// What of a kept key is not as it is now, naming the file, the field and both values; empty if
/// they are the same.
[[nodiscard]] std::string difference(const std::string& file, const start_key& kept,
                                     const start_key& now);

}  // namespace cohort::formats
