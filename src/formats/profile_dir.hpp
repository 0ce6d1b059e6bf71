// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads a folder of measured models: latency.csv, slo.csv and, for interference, util.csv and
/// interference.csv or, for models without usage, pairs.csv.
#pragma once

#include <cohort/core/latency_model.hpp>
#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>

#include <optional>
#include <string>
#include <vector>

#include "profile_check.hpp"

namespace cohort::formats {

struct profile_dir {
  std::vector<packing::model_profile> models;  ///< In the order of slo.csv.
  std::optional<packing::interference_model> interference;
  warnings repairs{};  ///< Repairs of the input, and guesses.

  /// Index of the model of that name, if any.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// The sizes measured for all models, ascending.
  [[nodiscard]] std::vector<std::uint32_t> common_sizes() const;
};

/// @param interference Whether to read util.csv and interference.csv, or pairs.csv, which are then
/// required.
/// @throws input_error If a file is missing or bad.
[[nodiscard]] profile_dir read_profile_dir(const std::string& dir, bool interference);
/// Also reads util.csv if present; it need not have rows of each model.
[[nodiscard]] profile_dir read_profile_dir_with_usage(const std::string& dir);

/// The latencies of one model on whole devices, from latency.csv alone.
/// @param repairs Receives the repairs.
/// @throws input_error If the file is missing or bad, or has no row of the model.
[[nodiscard]] std::vector<latency_point> read_whole_device(const std::string& dir,
                                                           const std::string& model,
                                                           warnings& repairs);

}  // namespace cohort::formats
