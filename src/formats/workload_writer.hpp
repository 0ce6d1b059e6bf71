// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writing WORKLOAD.json.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>

namespace cohort::formats {

/// Writes a workload that is no trace. `parse_workload` reads the same from it, but that
/// popularities have become shares and load steps are left out.
[[nodiscard]] std::string write_workload(const sim::workload& w);

}  // namespace cohort::formats
