// SPDX-License-Identifier: Apache-2.0
/// @file
/// A warning where models have too few requests to be judged one by one.
#pragma once

#include "commands.hpp"

#include <formats/json_writer.hpp>
#include <formats/profile_check.hpp>

#include <cohort/sim/result.hpp>
#include <cohort/sim/workload.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cohort::commands {

/// With fewer, a share of 1 % is a matter of less than ten requests.
inline constexpr std::uint64_t enough_requests = 1000;

/// The model that has the fewest of those that have any to expect; null if there is none.
[[nodiscard]] const sim::model_result* least_requested(
    const std::vector<sim::model_result>& models);

/// Says how many of a run's models have fewer than `enough_requests`, which has the fewest, and how
/// long a run would do; nothing if all have enough.
[[nodiscard]] std::optional<std::string> few_requests(const sim::workload& w,
                                                      const std::vector<sim::model_result>& models);

/// The same of runs at this rate, by what is to be expected.
[[nodiscard]] std::optional<std::string> few_requests(const sim::workload& w, double rate);

/// Writes the field `warnings`: what was repaired in the input, and what else there is.
void write_warnings(json_writer& out, const warnings& repairs,
                    const std::optional<std::string>& warning);

/// Prints it as a line on standard error, if there is one.
void warn(const std::optional<std::string>& warning);

}  // namespace cohort::commands
