// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a decode scheduler is made: `scheduler_options`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/kv/batch/budget.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/prompt/prefill_groups.hpp>

#include <cstdint>
#include <limits>

namespace cohort::kv {

/// Limits of a `decode_scheduler`.
struct scheduler_options {
  batch_options batch{};            ///< Slots to begin with, and columns.
  std::uint32_t max_slots = 8;      ///< Most slots; at least batch.slots.
  std::uint32_t max_queued = 1024;  ///< Sequences that are neither ended nor running; at least 1.
  std::uint32_t max_prepared = 64;  ///< Prefill pauses while this many wait for a slot; at least 1.
  /// Another group is handed out while fewer prompts than this are under prefill; at least 1. With
  /// 1, one group at a time.
  std::uint32_t max_prefilling = 1;
  /// In addition, `next_short_prefill` hands out groups while fewer of its prompts than this are
  /// out; 0: none.
  std::uint32_t max_overtaking = 0;
  std::uint32_t max_positions = 1U << 20U;  ///< The model's limit on prompt plus output; at least
                                            ///< 2.
  prefill_limits prefill{};
  budget_options budget{.high_bytes = std::numeric_limits<std::uint64_t>::max(),
                        .low_bytes = std::numeric_limits<std::uint64_t>::max(),
                        .bytes_per_column = 1};

  /// Checks the scheduler's own numbers; its parts check theirs.
  /// @throws config_error If one is outside its range.
  void validate() const {
    expects(max_queued >= 1, "decode_scheduler: max_queued must be at least 1");
    expects(max_prepared >= 1, "decode_scheduler: max_prepared must be at least 1");
    expects(max_prefilling >= 1, "decode_scheduler: max_prefilling must be at least 1");
    expects(max_positions >= 2, "decode_scheduler: max_positions must be at least 2");
  }
};

}  // namespace cohort::kv
