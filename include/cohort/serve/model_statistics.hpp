// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server's statistics of a model's requests, as in the protocol's statistics extension.
#pragma once

#include <cohort/core/time.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace cohort::serve {

/// A count and the total time.
struct time_spent {
  std::uint64_t count = 0;
  duration total{0};

  void add(duration d) noexcept {
    ++count;
    total += d;
  }
};

/// Why a request has no result, by Triton Inference Server's kinds.
enum class failure : std::uint8_t {
  rejected,  ///< Refused, or dropped before it ran.
  canceled,  ///< Its client has gone.
  backend,   ///< It failed while it ran.
  other,
};

/// Statistics of one version of a model since its start. Thread safety: none.
struct model_statistics {
  time_spent success;         ///< Requests answered with results, from arrival to answer.
  time_spent fail;            ///< Others, except those with an invalid body.
  time_spent queue;           ///< Of successes, as all below: until a batch's planned start, or
                              ///< it was looked for in the response cache, if it was found there.
  time_spent compute_input;   ///< Reading them.
  time_spent compute_infer;   ///< From that start to the end: copies and computing.
  time_spent compute_output;  ///< Writing the answer.
  time_spent cache_hit;       ///< Lookups in the response cache that hit.
  time_spent cache_miss;      ///< Lookups that missed, and storing the answers.
  std::chrono::system_clock::time_point last_inference;
  std::map<std::uint32_t, time_spent> rows;  ///< Rows by the size of their batch.
  std::array<std::uint64_t, 4> failures{};   ///< Those that failed, by `failure`.

  void failed(failure why, duration took) {
    fail.add(took);
    ++failures[static_cast<std::size_t>(why)];
  }
  /// Counts a row that ended with a result. @param batch Rows in its batch. @param took Its time.
  void ran(std::uint32_t batch, duration took) { rows[batch].add(took); }
  /// Rows that ran.
  [[nodiscard]] std::uint64_t inferences() const;
  /// Batches that ran, as `write_statistics` counts them.
  [[nodiscard]] std::uint64_t executions() const;
};

struct named_statistics {
  const std::string& name;
  const std::string& version;
  const model_statistics& of;
};

/// The body of GET /v2/models/stats. A batch of b rows counts as one execution for each b answered
/// rows, or part of that. Times are those of whole batches.
[[nodiscard]] std::string write_statistics(std::span<const named_statistics> models);

}  // namespace cohort::serve
