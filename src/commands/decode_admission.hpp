// SPDX-License-Identifier: Apache-2.0
/// @file
/// `cohort decode --admission`: the same requests, served under SLOs.
#pragma once

#include <formats/decode_files.hpp>
#include <formats/json_writer.hpp>
#include "commands.hpp"

#include <cohort/sim/llm/service.hpp>

#include <span>
#include <string>
#include <vector>

namespace cohort::commands {

/// A run of one admission policy.
struct served_requests {
  std::string policy;
  sim::service_result result;
};

/// Runs each policy that --admission names; returns none without it.
/// @throws input_error If an option is out of range, or requires another one.
[[nodiscard]] std::vector<served_requests> serve_requests(const decode_command_options& o,
                                                          const decode_requests& in,
                                                          const sim::decode_options& run);

/// Writes the field `admission`.
void write_served(json_writer& out, const decode_requests& in,
                  std::span<const served_requests> served);
/// The same as a text table.
[[nodiscard]] std::string served_text(std::span<const served_requests> served);

}  // namespace cohort::commands
