// SPDX-License-Identifier: Apache-2.0
/// @file
/// The input files of `cohort decode`.
#pragma once

#include <cohort/sim/llm/methods.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

struct decode_requests {
  std::vector<std::string> ids;
  std::vector<sim::decode_request> requests;
};

/// Reads id,prompt_tokens,output_tokens[,arrival_ms,priority].
/// @throws input_error If a field is missing or out of range, an id is empty or repeated, or there
///         is no row.
[[nodiscard]] decode_requests parse_decode_requests(const std::string& file, std::string_view text);

/// Reads {"iteration_ms", "per_token_ms", "per_column_ms"}; defaults are 1, 0 and 0.
/// @throws input_error As above, and if all are 0.
[[nodiscard]] sim::decode_cost parse_decode_cost(const std::string& file, std::string_view text);

}  // namespace cohort::formats
