// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads WORKLOAD.json.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>
#include <string_view>

#include "profile_check.hpp"

namespace cohort::formats {

/// Reads a workload from a file, or from standard input if `path` is "-". Also reads its trace, if
/// any, with a path relative to the workload's folder.
/// @param repairs Receives the repairs; null: discarded.
/// @throws input_error If it is not a valid workload, naming the first wrong place.
[[nodiscard]] sim::workload read_workload(const std::string& path, warnings* repairs = nullptr);

/// Reads a workload from text. @param file Name for errors; traces are relative to its folder.
[[nodiscard]] sim::workload parse_workload(const std::string& file, std::string_view text,
                                           warnings* repairs = nullptr);

/// Maximum number of requests of one run, so that its records fit in memory.
inline constexpr double most_requests = 2e8;

/// Checks that a run at `rate` is small enough to simulate. @param where Name for errors.
void check_run_size(const sim::workload& w, double rate, const std::string& where);

}  // namespace cohort::formats
