// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes WORKLOAD.json.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>

namespace cohort::formats {

/// Writes a workload that is not a trace. `parse_workload` reads it back, except that popularities
/// become shares and load steps are left out.
[[nodiscard]] std::string write_workload(const sim::workload& w);

}  // namespace cohort::formats
