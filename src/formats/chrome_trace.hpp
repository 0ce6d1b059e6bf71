// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run as a Chrome trace, which Perfetto and chrome://tracing open: one row a device.
#pragma once

#include <cohort/sim/result.hpp>
#include <cohort/sim/workload.hpp>

#include <string>

namespace cohort::formats {

/// The batches of a run with recorded dispatches, in the Trace Event Format (JSON object form).
[[nodiscard]] std::string chrome_trace(const sim::workload& w, const sim::run_result& run);

}  // namespace cohort::formats
