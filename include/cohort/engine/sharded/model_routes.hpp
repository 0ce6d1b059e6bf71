// SPDX-License-Identifier: Apache-2.0
/// @file
/// Maps models to shards and resolves cancellations: `model_routes`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cohort::engine {

/// Routes requests to their shards, and resolves races between a request's end and its
/// cancellation: both exchange `request::fate`, and the later one sees the earlier. If a
/// cancellation was first but is still on its way when the request ends, it is noted here, because
/// its message must no longer touch the request. Thread safety: `open`, `close`, `move` by one
/// thread at a time; the rest by any.
class model_routes {
 public:
  explicit model_routes(std::uint32_t models)
      : routes_{std::make_unique<route[]>(models)}, models_{models} {}

  void open(model_id id, std::uint32_t shard) noexcept {
    routes_[id.index()].shard.store(shard);
    routes_[id.index()].is_open.store(true);
  }
  /// @returns Whether it was open.
  bool close(model_id id) noexcept {
    return id.value() < models_ && routes_[id.index()].is_open.exchange(false);
  }
  void move(model_id id, std::uint32_t shard) noexcept { routes_[id.index()].shard.store(shard); }
  [[nodiscard]] bool is_open(model_id id) const noexcept {
    return id.value() < models_ && routes_[id.index()].is_open.load(std::memory_order_acquire);
  }
  /// For a removed model: its last shard.
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept {
    return routes_[id.index()].shard.load(std::memory_order_acquire);
  }

  /// Starts tracking an accepted request, not yet known to other threads.
  static void begin(request& r) noexcept {
    std::atomic_ref{r.fate}.store(live, std::memory_order_relaxed);
  }
  /// @returns The number of a cancellation to send; 0: the request has ended, or one was sent.
  std::uint32_t begin_cancel(request& r) noexcept {
    std::uint32_t expected = live;
    std::uint32_t number = next_.fetch_add(1, std::memory_order_relaxed);
    while (number <= live) number = next_.fetch_add(1, std::memory_order_relaxed);  // Wrap-around.
    return std::atomic_ref{r.fate}.compare_exchange_strong(expected, number) ? number : 0;
  }
  /// Notes that the request ended or joined its batch: later cancellations have no effect.
  void end(request& r) noexcept {
    const std::uint32_t was = std::atomic_ref{r.fate}.exchange(ended);
    if (was <= live) return;
    const std::lock_guard lock{mutex_};
    lost_.emplace_back(&r, was);
  }
  /// Handles an arrived cancellation. @returns Whether its request has ended and must not be
  /// touched: its memory may be reused.
  [[nodiscard]] bool is_lost(const request& r, std::uint32_t number) noexcept {
    const std::lock_guard lock{mutex_};
    const auto at = std::ranges::find(lost_, std::pair{&r, number});
    if (at == lost_.end()) return false;
    lost_.erase(at);
    return true;
  }
  /// Stops tracking a request that ended by its cancellation, or was not accepted after all.
  static void take_back(request& r) noexcept {
    std::atomic_ref{r.fate}.store(ended, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t ended = 0;  // Above `live`: the number of a cancellation.
  static constexpr std::uint32_t live = 1;

  struct route {
    std::atomic<std::uint32_t> shard{0};
    std::atomic<bool> is_open{false};
  };

  std::unique_ptr<route[]> routes_;
  std::uint32_t models_;
  std::mutex mutex_;
  /// Requests that ended while a cancellation was on its way, with its number: few.
  std::vector<std::pair<const request*, std::uint32_t>> lost_;
  std::atomic<std::uint32_t> next_{live + 1};
};

}  // namespace cohort::engine
