// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ways of batching LLM sequences side by side, on one decoder, in wall time.
#pragma once

#include <cohort/kv/batch/prepared.hpp>
#include <cohort/sim/llm/methods.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "llama.hpp"

namespace cohort::llama {

struct timed_request {
  std::vector<kv::token_id> prompt;
  std::uint32_t output = 1;  ///< Tokens to produce; nothing stops earlier.
  double arrival_s = 0;
};

struct compare_options {
  sim::decode_method method = sim::decode_method::baton;
  std::uint32_t slots = 8;
  /// Of pd and baton: prefill on a thread of its own, beside the iterations. Otherwise pd prefills
  /// all first, and baton one piece between two iterations.
  bool own_prefill_stream = false;
  std::uint32_t prefill_chunk = 32;  ///< Token rows of a piece; at least 1.
  /// With a thread of its own: pieces that it is given at once, so that it need not wait for the
  /// end of an iteration between two; at least 1.
  std::uint32_t prefill_ahead = 4;
  /// Of baton: prefill waits while so many wait for a slot; at least 1. A sequence that has its
  /// first token and no slot stands still, so more than a few only move the wait.
  std::uint32_t max_prepared = 2;
};

struct compare_result {
  double seconds = 0;      ///< From the first arrival to the last token.
  double cpu_seconds = 0;  ///< Of the process: what the work cost, whoever else uses the machine.
  std::uint64_t iterations = 0;
  std::vector<std::vector<kv::token_id>> tokens;  ///< Greedy.
  std::vector<double> first_token_ms;             ///< Of each request, from its arrival.
  std::vector<double> between_tokens_ms;          ///< Of all requests, in no order.
  std::vector<double>
      running_gaps_ms;               ///< The same without the wait of a prefilled one for a slot.
  std::vector<double> iteration_ms;  ///< Decode iterations without prompts, with all slots live.
};

/// Runs the requests, which arrive in order. Padding that a method computes is computed; attention
/// reads own columns in all of them. @throws config_error If a request is not of the model.
[[nodiscard]] compare_result compare(const llama& model, const std::vector<timed_request>& requests,
                                     const compare_options& o);

/// The longest prompt and the longest output: `compare` uses no more positions, also where a text
/// that has ended runs on until others have.
[[nodiscard]] std::size_t positions_of(const std::vector<timed_request>& requests) noexcept;

/// The request sets of the Baton paper, scaled: lengths are its word counts times `scale`. Set 1 is
/// 120 requests, long prompt and short output, the reverse, and both short, in parts 1 : 1 : 2;
/// long is 3600 to 4400, short 24 to 400. Set 2 is 30 of 24 to 200 both.
[[nodiscard]] std::vector<timed_request> paper_requests(int set, double scale,
                                                        const llama_config& c, std::uint64_t seed);

}  // namespace cohort::llama
