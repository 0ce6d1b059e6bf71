// SPDX-License-Identifier: Apache-2.0
/// @file
/// Warns if models have too few requests to be judged separately.
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

/// With fewer requests 1 % is fewer than ten.
inline constexpr std::uint64_t enough_requests = 1000;

/// The model with the fewest requests, among those that expect any; null if there is none.
[[nodiscard]] const sim::model_result* least_requested(
    const std::vector<sim::model_result>& models);

/// Says how many of a run's models have fewer than `enough_requests`, which one has the fewest, and
/// how long a run would suffice; nothing if all have enough.
[[nodiscard]] std::optional<std::string> few_requests(const sim::workload& w,
                                                      const std::vector<sim::model_result>& models);

/// The same for runs at this rate, by expected requests.
[[nodiscard]] std::optional<std::string> few_requests(const sim::workload& w, double rate);

/// Writes the field `warnings`: repairs of the input, and an optional other warning.
void write_warnings(json_writer& out, const warnings& repairs,
                    const std::optional<std::string>& warning);

/// Prints it as a line on standard error, if there is one.
void warn(const std::optional<std::string>& warning);

}  // namespace cohort::commands
