// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server's data for its next start: measured profiles, and the best settings found.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats {

/// The conditions of a kept value: names and values, in order. The value applies if all are equal;
/// none is empty.
using start_key = std::vector<std::pair<std::string, std::string>>;

/// Measured times of batches of one size.
struct kept_point {
  std::uint32_t batch = 1;
  double median_ms = 0;
  double least_ms = 0;  ///< Shortest of all runs, without other programs' time if known.
  friend bool operator==(const kept_point&, const kept_point&) = default;
};

/// A measured model.
struct kept_profile {
  start_key key;
  std::vector<kept_point> points;  ///< By rising batch; not empty.
};

/// Measured time of one operator of a model.
struct kept_operator_time {
  std::uint32_t bucket = 0;  ///< Index of the padded input size.
  std::uint32_t op = 0;      ///< Index in the model.
  std::uint32_t batch = 1;
  double ms = 0;
  friend bool operator==(const kept_operator_time&, const kept_operator_time&) = default;
};

/// Measured time of a pipeline's row beside its stages.
struct kept_row_time {
  std::uint32_t batch = 1;
  double ms = 0;
  friend bool operator==(const kept_row_time&, const kept_row_time&) = default;
};

/// Data for cutting a model into a pipeline.
struct kept_stages {
  start_key key;
  /// By bucket, operator and batch, ascending: all buckets have the same operators and batches.
  std::vector<kept_operator_time> operators;
  std::vector<kept_row_time> rows;  ///< By ascending batch; not empty.
  double hand_over_ms = 0;
};

/// Settings found by a self-tuning scheduler.
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

/// @param file Name for errors.
/// @throws input_error If it is not a profile of version 1.
[[nodiscard]] kept_profile parse_kept_profile(const std::string& file, std::string_view text);
/// @throws input_error If these are not stages of version 1.
[[nodiscard]] kept_stages parse_kept_stages(const std::string& file, std::string_view text);
/// @throws input_error If these are not settings of version 1.
[[nodiscard]] kept_settings parse_kept_settings(const std::string& file, std::string_view text);

/// Describes the first difference of a kept key to the present one, with file, field and both
/// values; empty if they are equal.
[[nodiscard]] std::string difference(const std::string& file, const start_key& kept,
                                     const start_key& now);

}  // namespace cohort::formats
