// SPDX-License-Identifier: Apache-2.0
/// @file
/// What threads that submit requests need to know of a model: `model_door`.
#pragma once

#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

namespace cohort::engine {

/// Lets requests of a model in without asking the core. Its loop writes it, but for `waiting`.
/// Thread safety: the atomics and `enter` from any thread, the rest from the loop's.
struct model_door {
  std::atomic<bool> open{false};
  std::atomic<std::uint32_t> waiting{0};  ///< For a batch, or on the way to the loop.
  std::atomic<bool> has_device{false};
  std::atomic<std::uint32_t> capacity{0};
  std::atomic<std::uint32_t> max_request_size{0};
  std::atomic<duration> least_time{duration{0}};
  duration slo{0};
  std::function<void()> gone;

  /// Counts a request among those that wait, or says why not. Of one that is open.
  [[nodiscard]] std::optional<refusal> enter(const request& r, time_point now) noexcept {
    // Asked again on the loop's thread: the model may just have made way for another.
    if (r.size > max_request_size.load(std::memory_order_relaxed)) return refusal::too_big;
    if (now + least_time.load(std::memory_order_relaxed) > r.deadline) {
      return refusal::deadline_infeasible;
    }
    if (waiting.fetch_add(1, std::memory_order_relaxed) >=
        capacity.load(std::memory_order_relaxed)) {
      leave();
      return refusal::queue_full;
    }
    return std::nullopt;
  }
  /// One of those that wait does so no more.
  void leave() noexcept { waiting.fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace cohort::engine
