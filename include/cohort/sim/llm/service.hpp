// SPDX-License-Identifier: Apache-2.0
/// @file
/// An LLM service in virtual time with two latency promises: options and results.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/kv/batch/prepared.hpp>
#include <cohort/kv/prompt/prefill_groups.hpp>
#include <cohort/sim/llm/methods.hpp>

#include <cstdint>
#include <vector>

namespace cohort::sim {

/// A service: a decode batch, prefill beside it or within its iterations, and two promises.
struct service_options {
  std::uint32_t slots = 8;  ///< 1 to 65 536.
  /// An iteration without prefill lasts iteration_ms + per_token_ms · rows + per_column_ms · own
  /// columns; prompt tokens cost per_token_ms each.
  decode_cost cost{};
  double prefill_ms = 0;  ///< Cost of a prefill run or piece beyond its tokens; finite, at least 0.
  /// If true, iterations include prefill in pieces; if false, it has its own stream.
  bool is_coupled = false;
  duration first_token = unbounded;     ///< Limit from arrival to the first token; above 0.
  duration between_tokens = unbounded;  ///< Limit between two tokens of a request; above 0.
  std::uint32_t max_prepared = 16;      ///< Prefill pauses while this many wait for a slot.
  kv::prefill_limits prefill{.max_rows = 8, .max_waste = 0.25, .max_positions = 4096};
};

/// Outcome of a request.
struct service_outcome {
  time_point first_token = never;  ///< `never`: dropped before.
  time_point finish = never;
  duration longest_gap{0};  ///< Between two of its tokens.
};

struct service_result {
  std::vector<service_outcome> outcomes;  ///< In the order of the requests.
  std::uint64_t good = 0;                 ///< Both promises kept, and finished.
  std::uint64_t first_in_time = 0;
  std::uint64_t gaps_in_time = 0;  ///< Finished, and every gap in time.
  std::uint64_t dropped = 0;       ///< Dropped or refused because the first token would be late.
  std::uint64_t refused = 0;       ///< Of these, refused on arrival.
  std::uint64_t iterations = 0;
  std::uint64_t groups = 0;  ///< Prefill groups.
  std::uint64_t tokens = 0;  ///< Produced.
  double seconds = 0;        ///< Virtual time from 0 to the last event.

  /// Good requests per second, over the time of arrivals.
  [[nodiscard]] double good_share() const noexcept {
    return outcomes.empty() ? 1.0
                            : static_cast<double>(good) / static_cast<double>(outcomes.size());
  }
};

}  // namespace cohort::sim
