// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of a pipeline: buffers, entry, windows and limits.
#pragma once

#include <cohort/batching/meta_ops.hpp>
#include <cohort/core/time.hpp>

#include <cstdint>
#include <optional>

namespace cohort::batching {

/// When waiting requests may form a row if no fixed window is set.
enum class entry_rule : std::uint8_t {
  stage_free,  ///< When the first stage could start them at once.
  idle,        ///< When no row exists: for a device that runs one item at a time anyway.
};

/// Options of a pipeline.
struct pipeline_options {
  std::uint32_t buffer_sets = 2;  ///< At least 1. One makes it serial.
  /// Each buffer set has executors of its own, so that rows overlap also within a stage; the number
  /// of sets is then the number of rows in flight.
  bool executors_per_set = false;
  entry_rule entry = entry_rule::stage_free;
  /// Requests that arrive within this time of the first form one row (or one per cluster), which
  /// may wait for the first stage. Unset: rows are formed as late as possible, by `entry`. At least
  /// 0.
  std::optional<duration> window{};
  stretch_limits stretch{};
  bool serial_children = false;      ///< Parts of a split row run one after the other, to the end.
  std::uint32_t max_rows = 256;      ///< Rows at one time, parts included; 1 to 65536.
  std::uint32_t max_waiting = 4096;  ///< Maximum number of waiting requests; at least 1.
};

}  // namespace cohort::batching
