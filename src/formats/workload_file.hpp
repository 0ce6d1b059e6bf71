// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading WORKLOAD.json.
#pragma once

#include <cohort/sim/workload.hpp>

#include <string>
#include <string_view>

#include "profile_check.hpp"

namespace cohort::formats {

/// Reads a workload from a file, or from standard input if `path` is "-". A trace that it names is
/// read too; its path is relative to the workload's folder.
/// @param repairs Gets what was taken with a repair; null: nobody asks.
/// @throws input_error If it is not a valid workload, naming the first place that is wrong.
[[nodiscard]] sim::workload read_workload(const std::string& path, warnings* repairs = nullptr);

/// Reads a workload from text. @param file Named in errors; traces are relative to its folder.
[[nodiscard]] sim::workload parse_workload(const std::string& file, std::string_view text,
                                           warnings* repairs = nullptr);

/// Most requests that one run may simulate, so that its records fit in memory.
inline constexpr double most_requests = 2e8;

/// Checks that a run at `rate` is of a size that can be simulated. @param where Named in errors.
void check_run_size(const sim::workload& w, double rate, const std::string& where);

}  // namespace cohort::formats
