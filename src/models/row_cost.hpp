// SPDX-License-Identifier: Apache-2.0
/// @file
/// The cost of a pipeline's rows beside their stages.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/batching/stage_driver.hpp>
#include <cohort/batching/stage_profile.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::models {

/// Costs measured on an executor and the thread that drives it (`measure_rows`).
struct row_cost {
  /// Times of rows of 1, 2, 4, ... requests through all stages in one item: copies in and out,
  /// launch and wake-ups.
  std::vector<batching::batch_time> rows;
  duration hand_over{};  ///< Cost of each item beyond a row's first.

  /// Whether copies get their own stages: only if they take longer than the two hand-overs that
  /// these cost.
  [[nodiscard]] batching::copy_rule copies() const {
    const bool are_long = !rows.empty() && rows.back().time - rows.front().time > 2 * hand_over;
    return are_long ? batching::copy_rule::apart : batching::copy_rule::together;
  }
  /// Times of rows, minus the hand-over that plans and trials add to each item.
  [[nodiscard]] std::vector<batching::batch_time> beside_hand_over() const {
    std::vector<batching::batch_time> out = rows;
    for (batching::batch_time& r : out) r.time = std::max(duration{0}, r.time - hand_over);
    return out;
  }
  /// The same as points of a profile of the copies.
  [[nodiscard]] std::vector<batching::stage_point> points(std::uint32_t buckets) const {
    std::vector<batching::stage_point> out;
    for (std::uint32_t k = 0; k < buckets; ++k) {
      for (const batching::batch_time& r : beside_hand_over()) {
        out.push_back({.batch = r.batch, .bucket = k, .time = r.time});
      }
    }
    return out;
  }
};

}  // namespace cohort::models
