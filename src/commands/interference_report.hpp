// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `cohort interference` measured and fitted, as JSON, as text and as a picture.
#pragma once

#include <formats/pairs_file.hpp>
#include <formats/profile_dir.hpp>
#include "interference_fit.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cohort::commands {

/// All that there is to tell.
struct interference_run {
  std::string pairs;   ///< As --pairs says.
  std::string device;  ///< Of the rows; empty without any.
  std::uint64_t seed = 1;
  std::size_t possible = 0;  ///< Pairs of models.
  std::vector<formats::measured_neighbour> rows;
  interference_fit fit;
};

[[nodiscard]] std::string interference_json(const interference_run& r,
                                            const formats::profile_dir& profiles);
/// A table of pairs, and sentences on the fit.
[[nodiscard]] std::string interference_text(const interference_run& r,
                                            const formats::profile_dir& profiles);
/// Factors predicted against measured.
[[nodiscard]] std::string interference_svg(const interference_run& r,
                                           const formats::profile_dir& profiles);
/// The one row of interference.csv. @param m The fit.
[[nodiscard]] std::string coefficients_csv(const packing::interference_model& m);

}  // namespace cohort::commands
