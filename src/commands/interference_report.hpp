// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports the results of `cohort interference` as JSON, text and a chart.
#pragma once

#include <formats/pairs_file.hpp>
#include <formats/profile_dir.hpp>
#include "interference_fit.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::commands {

/// All results of a run.
struct interference_run {
  std::string pairs;   ///< The value of --pairs.
  std::string device;  ///< Device of the rows; empty without any.
  std::uint64_t seed = 1;
  std::size_t possible = 0;  ///< Pairs of models.
  std::vector<formats::measured_neighbour> rows;
  interference_fit fit;
};

[[nodiscard]] std::string interference_json(const interference_run& r,
                                            const formats::profile_dir& profiles);
/// A table of pairs, and sentences about the fit.
[[nodiscard]] std::string interference_text(const interference_run& r,
                                            const formats::profile_dir& profiles);
/// Factors predicted against measured.
[[nodiscard]] std::string interference_svg(const interference_run& r,
                                           const formats::profile_dir& profiles);
/// The single row of interference.csv. @param m The fit.
[[nodiscard]] std::string coefficients_csv(const packing::interference_model& m);

}  // namespace cohort::commands
