// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that say how a load rises and falls.
#pragma once

#include <cohort/sim/plans/load_curve.hpp>

#include <string>

namespace cohort::formats {

/// FILE.csv: `time_s,part`, times rising, linear between rows.
/// @param path - for standard input. @throws input_error With the place in the file.
[[nodiscard]] sim::load_curve read_load_curve(const std::string& path);

}  // namespace cohort::formats
