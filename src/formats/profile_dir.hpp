// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading a folder of measured models: latency.csv, slo.csv and, for interference, util.csv and
/// interference.csv or, for models without usage, pairs.csv.
#pragma once

#include <cohort/packing/model/interference.hpp>
#include <cohort/packing/model/profile.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cohort::formats {

struct profile_dir {
  std::vector<packing::model_profile> models;  ///< In the order of slo.csv.
  std::optional<packing::interference_model> interference;
  std::string note;  ///< What was guessed of interference, for people; empty if nothing.

  /// Index of the model of that name, if any.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// The sizes that were measured for all models, ascending.
  [[nodiscard]] std::vector<std::uint32_t> common_sizes() const;
};

/// @param interference Whether util.csv and interference.csv, or pairs.csv, are needed; else they
///        are not read.
/// @throws input_error If a file is missing or bad.
[[nodiscard]] profile_dir read_profile_dir(const std::string& dir, bool interference);
/// The same, and util.csv if it is there; it need not have rows of each model.
[[nodiscard]] profile_dir read_profile_dir_with_usage(const std::string& dir);

}  // namespace cohort::formats
