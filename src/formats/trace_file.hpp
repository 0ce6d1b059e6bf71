// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads traces of arrivals: CSV with the columns time_ms and model.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// The arrivals of a trace. @param file Name for errors.
/// @throws input_error If the text is not such a CSV, a time is not a number from 0 to 1e10 or
/// decreases, or a model is not among `models`.
[[nodiscard]] std::vector<sim::trace_row> parse_trace(const std::string& file,
                                                      std::string_view text,
                                                      const std::vector<sim::model_spec>& models);

}  // namespace cohort::formats
