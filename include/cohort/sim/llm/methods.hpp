// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares methods of forming LLM decode batches in virtual time.
#pragma once

#include <cohort/core/time.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort::sim {

/// A request of a decode simulation.
struct decode_request {
  std::uint32_t prompt = 1;  ///< Tokens of the prompt; at least 1.
  std::uint32_t output = 1;  ///< Tokens to produce, the one of prefill included; at least 1.
  time_point arrival{};
  std::uint8_t priority = 0;  ///< 0 is the most important.
};

/// How requests share a batch.
enum class decode_method : std::uint8_t {
  run_to_completion,  ///< Groups, prefilled together, all stay until the last has finished.
  pd,                 ///< The same, but prefilled separately in groups of similar length.
  shaping,            ///< Prompts enter a running batch, padded: Baton without decoupled prefill.
  orca,               ///< Prompts enter a running batch, ragged: selective batching.
  baton,              ///< Prefilled separately, then embedded in the running batch.
};

[[nodiscard]] constexpr std::string_view to_string(decode_method m) noexcept {
  switch (m) {
    case decode_method::run_to_completion:
      return "run-to-completion";
    case decode_method::pd:
      return "pd";
    case decode_method::shaping:
      return "shaping";
    case decode_method::orca:
      return "orca";
    case decode_method::baton:
      return "baton";
  }
  return "?";
}

/// How long an iteration lasts: iteration_ms, plus per_token_ms for each token position computed,
/// plus per_column_ms for each column of keys and values read. A decoupled prefill runs beside the
/// iterations, in groups one after another, for per_token_ms a position. All finite, at least 0.
struct decode_cost {
  double iteration_ms = 1;
  double per_token_ms = 0;
  double per_column_ms = 0;
};

/// Which request enters next; see kv/batch/pick_policy.hpp. Run to completion is always fifo.
enum class decode_pick : std::uint8_t { fifo, best_fit, priority };

struct decode_options {
  decode_method method = decode_method::baton;
  std::uint32_t batch = 8;  ///< Slots; 1 to 65 536.
  decode_pick pick = decode_pick::fifo;
  bool ragged = false;  ///< The kernel reads only own columns. Always for orca.
  decode_cost cost{};
  bool record_stays = false;
};

/// A request's stay in a slot.
struct decode_stay {
  std::uint32_t slot = 0;
  std::uint32_t request = 0;
  time_point from{};
  time_point to{};
};

/// Counts of a run; docs/kv/decode.md defines each.
struct decode_result {
  std::uint64_t iterations = 0;
  std::uint64_t useful_tokens = 0;
  std::uint64_t held = 0;
  std::uint64_t starved = 0;
  std::uint64_t drain = 0;
  std::uint64_t padding_tokens = 0;
  std::uint64_t inserts = 0;
  std::uint64_t grows = 0;
  std::uint64_t peak_columns = 0;
  double kv_read_waste = 0;
  std::uint64_t columns_moved = 0;
  std::uint64_t columns_written = 0;
  double seconds = 0;  ///< Virtual time from 0 to the last token.
  std::vector<time_point> first_token;
  std::vector<time_point> finish;
  double first_token_p50_ms = 0;
  double first_token_p99_ms = 0;
  double between_tokens_p50_ms = 0;
  double between_tokens_p99_ms = 0;
  std::vector<decode_stay> stays;
};

}  // namespace cohort::sim
