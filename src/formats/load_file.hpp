// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that describe a load's variation over time.
#pragma once

#include <cohort/sim/plans/load_curve.hpp>

#include <string>

namespace cohort::formats {

/// Reads FILE.csv: `time_s,part`, times ascending, linear between rows.
/// @param path - for standard input. @throws input_error With the place in the file.
[[nodiscard]] sim::load_curve read_load_curve(const std::string& path);

}  // namespace cohort::formats
