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

/// What a scheduler that tunes itself decided by.
struct kept_settings {
  start_key key;
  deferred::settings settings;
};

/// JSON of version 1, which `parse_kept_profile` reads:
/// { "format": "cohort profile", "version": 1, "key": {"model": "lenet", ...},
///   "points": [ {"batch": 1, "median_ms": 0.05, "least_ms": 0.049} ] }
[[nodiscard]] std::string write_kept(const kept_profile& p);
/// The same for settings:
/// { "format": "cohort settings", "version": 1, "key": {...}, "window": "brief", "quantile": 0.9 }
[[nodiscard]] std::string write_kept(const kept_settings& s);

/// @param file Named in errors.
/// @throws input_error If it is not a profile of version 1.
[[nodiscard]] kept_profile parse_kept_profile(const std::string& file, std::string_view text);
/// @throws input_error If these are not settings of version 1.
[[nodiscard]] kept_settings parse_kept_settings(const std::string& file, std::string_view text);

/// What of a kept key is not as it is now, naming the file, the field and both values; empty if
/// they are the same.
[[nodiscard]] std::string difference(const std::string& file, const start_key& kept,
                                     const start_key& now);

}  // namespace cohort::formats
