// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs two real batches alone and side by side, in real time: the machine of `measure_turns`.
#pragma once

#include <models/timed_pair.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>

namespace cohort::commands {

/// Thrown between runs after the user has asked to stop.
struct stop_asked : std::exception {};

/// How long to measure, and by which clock.
struct runner_options {
  double block_s =
      0.05;  ///< Duration of runs alone or side by side; at least one run of each side.
  bool busy =
      false;  ///< Counts the time of the work itself, without other programs' time on its core.
  const std::atomic<bool>* stop = nullptr;
};

/// Both sides must have been placed. Models: `pair_machine`.
class pair_runner {
 public:
  /// @param pair Must outlive this.
  pair_runner(models::timed_pair& pair, std::array<std::uint32_t, 2> batches,
              const runner_options& o)
      : pair_{pair}, batches_{batches}, options_{o} {}

  /// Median of one block. @throws stop_asked
  [[nodiscard]] double alone(std::size_t side);
  /// Median of both sides, each run repeatedly on its own thread until the other has also finished
  /// its block. @throws stop_asked
  [[nodiscard]] std::array<double, 2> together();

 private:
  using clock = std::chrono::steady_clock;

  double run(std::size_t side);
  void check_stop() const;

  models::timed_pair& pair_;
  std::array<std::uint32_t, 2> batches_;
  runner_options options_;
};

}  // namespace cohort::commands
