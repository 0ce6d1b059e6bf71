// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run as JSON and as text.
#pragma once

#include "commands.hpp"

#include <formats/json_writer.hpp>
#include <formats/profile_check.hpp>
#include <registry/policy.hpp>

#include <cohort/sim/result.hpp>
#include <cohort/sim/workload.hpp>

#include <cstdint>
#include <string>

namespace cohort::commands {

/// A run and its inputs.
struct report {
  const policy& how;
  const sim::workload& load;
  std::uint64_t seed;
  const sim::run_result& run;
  warnings repairs{};  ///< Repairs of the input.
};

/// Writes the object that `cohort simulate --json` prints, as one value.
void write_report(json_writer& out, const report& r, bool with_dispatches);

/// The same as text: a summary and a table of the models.
[[nodiscard]] std::string report_text(const report& r, bool with_dispatches);

}  // namespace cohort::commands
