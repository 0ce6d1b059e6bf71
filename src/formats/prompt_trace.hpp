// SPDX-License-Identifier: Apache-2.0
/// @file
/// Recorded prompts, and the endpoints that serve them: the input files of `cohort cluster
/// --prompts`.
#pragma once

#include <cohort/sim/cluster/text_endpoint.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

struct prompt_trace {
  std::vector<sim::text_request> requests;  ///< By arrival; the first arrives at 0.
  std::uint32_t block_tokens = 0;           ///< Of a block with a hash; 0: there are no hashes.
};

/// Reads CSV with the columns TIMESTAMP,ContextTokens,GeneratedTokens (Azure's traces), CSV with
/// arrival_ms,prompt_tokens,output_tokens, or lines of JSON with timestamp (ms), input_length,
/// output_length and perhaps hash_ids, of blocks of 512 tokens (Mooncake's). Answers of no token
/// count as one.
/// @throws input_error If a field is missing or out of range, times go back, or there is no row.
[[nodiscard]] prompt_trace parse_prompt_trace(const std::string& file, std::string_view text);

/// Reads {"iteration_ms", "prefill_ms_per_token", "sequence_ms", "kv_ms_per_thousand_tokens",
/// "chunk_tokens", "slots", "kv_tokens", "block_tokens"}; what is missing keeps its default.
/// @throws input_error If a field is unknown or out of range.
[[nodiscard]] sim::text_endpoint_spec parse_text_endpoint(const std::string& file,
                                                          std::string_view text);

}  // namespace cohort::formats
