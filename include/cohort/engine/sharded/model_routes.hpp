// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which shard has a model, and what became of cancellations: `model_routes`.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/core/request.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace cohort::engine {

/// The way of requests to their shards, and the race between the end of a request and its
/// cancellation: both exchange `request::fate`, and whoever comes second knows. A cancellation that
/// came second to nothing but is still on its way when the request ends is noted here, as its
/// message must not touch the request any more.
/// Thread safety: `open`, `close`, `move` by one thread at a time; the rest by any.
class model_routes {
 public:
  explicit model_routes(std::uint32_t models)
      : routes_{std::make_unique<route[]>(models)}, models_{models} {}

  void open(model_id id, std::uint32_t shard) noexcept {
    routes_[id.index()].shard.store(shard);
    routes_[id.index()].is_open.store(true);
  }
  void close(model_id id) noexcept { routes_[id.index()].is_open.store(false); }
  void move(model_id id, std::uint32_t shard) noexcept { routes_[id.index()].shard.store(shard); }
  [[nodiscard]] bool is_open(model_id id) const noexcept {
    return id.value() < models_ && routes_[id.index()].is_open.load(std::memory_order_acquire);
  }
  /// Also of a model that was removed: where it was last.
  [[nodiscard]] std::uint32_t shard_of(model_id id) const noexcept {
    return routes_[id.index()].shard.load(std::memory_order_acquire);
  }

  /// A request is accepted; nobody else knows it yet.
  static void begin(request& r) noexcept {
    std::atomic_ref{r.fate}.store(live, std::memory_order_relaxed);
  }
  /// @returns Whether a cancellation is to be sent: the request had not ended, nor was one sent.
  static bool begin_cancel(request& r) noexcept {
    std::uint8_t expected = live;
    return std::atomic_ref{r.fate}.compare_exchange_strong(expected, cancelling);
  }
  /// The request ends, or goes into its batch: a cancellation has no effect any more.
  void end(request& r) noexcept {
    if (std::atomic_ref{r.fate}.exchange(ended) != cancelling) return;
    const std::lock_guard lock{mutex_};
    lost_.push_back(&r);
  }
  /// A cancellation has arrived. @returns Whether its request has ended, and is not to be touched.
  [[nodiscard]] bool is_lost(const request& r) noexcept {
    const std::lock_guard lock{mutex_};
    const auto at = std::ranges::find(lost_, &r);
    if (at == lost_.end()) return false;
    lost_.erase(at);
    return true;
  }
  /// The request ends by its cancellation, or was not taken after all: nobody else looks at it.
  static void take_back(request& r) noexcept {
    std::atomic_ref{r.fate}.store(ended, std::memory_order_relaxed);
  }
  /// A cancellation could not be sent after all.
  void take_back_cancel(request& r) noexcept {
    std::uint8_t expected = cancelling;
    if (std::atomic_ref{r.fate}.compare_exchange_strong(expected, live)) return;
    while (!is_lost(r)) std::this_thread::yield();  // Whoever ended it is about to note it.
  }

 private:
  enum : std::uint8_t { ended, live, cancelling };
  struct route {
    std::atomic<std::uint32_t> shard{0};
    std::atomic<bool> is_open{false};
  };

  std::unique_ptr<route[]> routes_;
  std::uint32_t models_;
  std::mutex mutex_;
  std::vector<const request*> lost_;  // Ended while a cancellation was on its way: few.
};

}  // namespace cohort::engine
