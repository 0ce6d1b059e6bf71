// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is asked of a generator, and how it is set up.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/kv/batch/budget.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>
#include <cohort/kv/prompt/prefill_groups.hpp>
#include <cohort/kv/prompt/prefill_pace.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sampler.hpp"

namespace cohort::llama {

/// One request. The caller fills the first part and keeps the object alive until `finished`.
struct generation : kv::sequence {
  std::vector<kv::token_id> text;  ///< The prompt; at least one token, all of the vocabulary.
  sampling how{};
  std::vector<kv::token_id> stop_tokens;  ///< Produced, they end the text and are not part of it.
  /// Called with each token that is part of the text, on the loop's thread. Returns whether the
  /// text ends here (a stop string). May be empty.
  std::function<bool(generation&, const sampled&)> on_token;
  time_point arrival = never;  ///< When its first token's time began to count, if before `submit`.

  /// Written by the generator.
  std::vector<kv::token_id> produced;  ///< Stop tokens included.
  std::vector<time_point> times;       ///< When each came.
  std::optional<kv::finish_reason> finished;
  std::uint64_t prefix = 0;   ///< Entry of its prompt, from prefill until it is in a slot.
  std::uint64_t staging = 0;  ///< Where its prompt is being prefilled.
  std::uint32_t staged = 0;   ///< Tokens of it that were handed to the prefill stream.
  /// Of one that is refused with `deadline_infeasible`: when one like it would not be; `never`: not
  /// even with nothing before it.
  time_point retry_from = never;
};

/// How long prompts take at best beside those before them, as measured.
struct measured_prefill {
  struct state {
    kv::prefill_curve curve;
    kv::prefill_pace pace;
    duration backlog{0};  ///< Of prompts that were taken in and are not yet done, by the curve.
  };
  const state* now;  ///< Must outlive it.

  [[nodiscard]] duration operator()(const kv::prefill_shape& s) const noexcept {
    const std::uint32_t rows = std::max(1U, s.rows);
    const duration row = now->curve.between(0, static_cast<std::uint32_t>(s.tokens / rows));
    const duration all = now->curve.fixed() + rows * row + now->backlog;
    return duration{static_cast<std::int64_t>(now->pace.best() * to_ms(all) * 1e6)};
  }
};

struct generator_options {
  std::uint32_t slots = 8;                             ///< Rows of the decode batch.
  std::uint32_t columns = 64;                          ///< First capacity; a power of two.
  std::uint64_t kv_bytes = std::uint64_t{512} << 20U;  ///< Of the batch's keys and values.
  std::uint64_t staging_bytes = std::uint64_t{512}
                                << 20U;  ///< Of packed ones; a text has a quarter.
  std::uint32_t max_queued = 4096;
  std::uint32_t max_prepared = 16;
  std::uint32_t prefill_chunk = 64;  ///< Token rows that one piece of prefill computes; at least 1.
  /// Pieces handed to the prefill stream at once, a job; at least 1. A prompt of no more tokens is
  /// short: every second piece is of a short one.
  std::uint32_t prefill_ahead = 4;
  /// Prompts that share the prefill stream in turn, first come, first served; at least 1.
  std::uint32_t max_prefilling = 16;
  /// Short prompts that share it beside these, so that they do not wait for a place among long
  /// ones: with a place they wait for the job under way, and for twice the pieces of other short
  /// prompts.
  std::uint32_t max_overtaking = 16;
  /// Packed prompts that are kept for equal ones to come, on top of staging, with all that belongs
  /// to them: columns, logits, tokens. 0: equal prompts are computed once only while one of them is
  /// at hand.
  std::uint64_t prefix_bytes = std::uint64_t{64} << 20U;
  /// Longest time from arrival to the first token. Prompts are accepted only if it will be kept, by
  /// what was measured, of them and of all that were before; pieces are computed by earliest
  /// deadline whatever `max_prefilling` and `max_overtaking` are, and none is accepted while
  /// `max_prepared` wait for a slot. Whoever cannot be in time all the same ends with `deadline`.
  /// `unbounded`: no promise, and none does.
  duration first_token = unbounded;
  /// Longest time between two tokens: prompts are not begun without a slot at that time.
  duration between_tokens = unbounded;
  kv::prefill_limits prefill{.max_rows = 8, .max_waste = 0.25, .max_positions = 512};

  [[nodiscard]] bool promises() const noexcept { return first_token < unbounded; }
  /// How many of the longest texts fit into staging: one whose prompt is computed beside those that
  /// wait for a slot or were preempted.
  [[nodiscard]] std::uint64_t staged_texts() const noexcept {
    return std::min<std::uint64_t>(4, std::uint64_t{prefill.max_rows} + 1);
  }
  /// The batch's memory: `kv_bytes`, which are shed down to seven eighths.
  [[nodiscard]] kv::budget_options budget(std::uint64_t column_bytes) const noexcept {
    return {.high_bytes = kv_bytes,
            .low_bytes = kv_bytes / 8 * 7,
            .bytes_per_column = column_bytes,
            .commit = kv::kv_commit::ring};
  }
  /// Packed bytes of the longest text that is accepted.
  [[nodiscard]] std::uint64_t longest_packed() const noexcept {
    return staging_bytes / staged_texts();
  }
};

}  // namespace cohort::llama
