// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the server counts, in the Prometheus text format.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace cohort::chat {

/// The generator between two turns.
struct generator_counts {
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::uint64_t kv_used = 0;  ///< Bytes of live columns.
  std::uint64_t kv_held = 0;  ///< Of the batch's memory.
  /// Since the start.
  std::uint64_t iterations = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t starved = 0;  ///< Slot-iterations empty while somebody waited.
};

/// Thread safety: any thread.
class metrics {
 public:
  explicit metrics(std::uint64_t kv_budget);
  ~metrics();
  metrics(const metrics&) = delete;
  metrics& operator=(const metrics&) = delete;

  void prompt(std::size_t tokens);
  void first_token(duration since_arrival);
  /// Of a further one, since the one before it.
  void next_token(duration gap);
  void ended(kv::finish_reason why, duration since_arrival);
  void refused();
  void answered(int status);
  void set(const generator_counts& c);

  [[nodiscard]] std::string text() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace cohort::chat
