// SPDX-License-Identifier: Apache-2.0
/// @file
/// A queue between two threads: `ring`.
#pragma once

#include <cohort/core/version.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace cohort::deferred {

/// A bounded queue. Neither side waits, locks or allocates; each reads the other's position only
/// when its cached copy does not suffice. Thread safety: one thread may push while one pops.
template <class T>
class ring {
 public:
  /// @param capacity Minimum capacity; rounded up to a power of two.
  explicit ring(std::size_t capacity) : places_(std::bit_ceil(capacity)) {}

  /// @returns False if it is full.
  bool push(T value) noexcept {
    if (!has_room()) return false;
    const std::size_t at = end_.load(std::memory_order_relaxed);
    places_[at & (places_.size() - 1)] = std::move(value);
    end_.store(at + 1);  // Sequentially consistent with waking a sleeper, see `parker`.
    return true;
  }
  /// Whether it is not full. For the pushing thread.
  [[nodiscard]] bool has_room() noexcept {
    const std::size_t at = end_.load(std::memory_order_relaxed);
    if (at - known_begin_ < places_.size()) return true;
    known_begin_ = begin_.load(std::memory_order_acquire);
    return at - known_begin_ < places_.size();
  }
  /// @returns False if it is empty.
  bool pop(T& value) noexcept {
    const std::size_t at = begin_.load(std::memory_order_relaxed);
    if (at == known_end_) {
      known_end_ = end_.load();
      if (at == known_end_) return false;
    }
    value = std::move(places_[at & (places_.size() - 1)]);
    begin_.store(at + 1, std::memory_order_release);
    return true;
  }
  /// For the popping thread.
  [[nodiscard]] bool empty() const noexcept {
    return begin_.load(std::memory_order_relaxed) == end_.load();
  }

 private:
  std::vector<T> places_;
  alignas(64) std::atomic<std::size_t> begin_{0};
  std::size_t known_end_ = 0;  // Cached by the popping thread.
  alignas(64) std::atomic<std::size_t> end_{0};
  std::size_t known_begin_ = 0;  // Cached by the pushing thread.
};

}  // namespace cohort::deferred
