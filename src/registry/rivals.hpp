// SPDX-License-Identifier: Apache-2.0
/// @file
/// The rivals by name, and runs under any of them. Their table is in run_rival.cpp.
#pragma once

#include <cohort/sim/result.hpp>
#include <cohort/sim/simulation.hpp>
#include <cohort/sim/workload.hpp>

#include "name_list.hpp"
#include "policy.hpp"

namespace cohort::registry {

[[nodiscard]] const name_list& rival_names();

/// Like `run_policy`, for a rival.
[[nodiscard]] sim::run_result run_rival(const policy& p, const sim::workload& w,
                                        const sim::run_options& options,
                                        const progress_function& progress);

}  // namespace cohort::registry
