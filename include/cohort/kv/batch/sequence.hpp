// SPDX-License-Identifier: Apache-2.0
/// @file
/// One generation, from submission to its final event.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <cstdint>

namespace cohort::kv {

/// Where a sequence is in its life.
enum class sequence_state : std::uint8_t {
  idle,        ///< Not submitted, or ended: it is the caller's.
  queued,      ///< Waits for prefill.
  prefilling,  ///< In a group that was handed out.
  prepared,    ///< Prefilled or preempted; waits for a slot.
  running,     ///< In the batch.
};

/// One generation. The caller fills the first part and keeps the object alive and unmoved until its
/// final event. Derive from it to carry the prompt, the text, the sampler. Thread safety: none.
struct sequence {
  request_id id{};
  std::uint32_t prompt = 1;   ///< Tokens; at least 1.
  std::uint32_t max_new = 1;  ///< Tokens to produce, including the one from prefill; at least 1.
  std::uint8_t priority = 0;  ///< 0 is the most important.
  time_point deadline = never;
  /// When the first token is due, for an admission policy that uses it; `never`: no promise.
  time_point first_token_by = never;
  /// Predicted time of its prefill alone, for a policy that promises: `decode_load::prefill`
  /// stretches it. At least 0; 0 if its columns are there already, or come with another sequence's.
  duration work{0};

  /// Written by the scheduler; read-only for the caller.
  sequence_state state = sequence_state::idle;
  prepared who{};
  std::uint64_t number = 0;   ///< Position in the order of submission.
  std::uint32_t slot = 0;     ///< While running.
  std::uint32_t entered = 0;  ///< Iteration of its latest entry, modulo 2^32.
  std::uint64_t packed = 0;   ///< Iterations that had their tokens when it was last preempted.
  bool overtook = false;      ///< It was handed out by `next_short_prefill`.
  bool cancel_requested = false;
  bool expired = false;
};

}  // namespace cohort::kv
