// SPDX-License-Identifier: Apache-2.0
/// @file
/// A queue from many threads to one: `inlet`.
#pragma once

#include <cohort/core/version.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <memory>

namespace cohort::engine {

/// A bounded queue without a lock: each place carries the turn in which it may be written or read.
/// Values of one thread stay in order. Allocates only when made. Thread safety: any thread may
/// push; one pops.
///
/// @tparam T Small; default-constructible.
template <class T>
class inlet {
 public:
  /// @param capacity Minimum capacity; rounded up to a power of two, at least 2.
  explicit inlet(std::size_t capacity)
      : mask_{std::bit_ceil(capacity < 2 ? 2 : capacity) - 1},
        places_{std::make_unique<place[]>(mask_ + 1)} {
    for (std::size_t i = 0; i <= mask_; ++i) places_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// @returns False if it is full.
  bool push(const T& value) noexcept {
    std::size_t at = end_.load(std::memory_order_relaxed);
    for (;;) {
      place& p = places_[at & mask_];
      const std::size_t turn = p.turn.load(std::memory_order_acquire);
      if (turn == at) {
        if (end_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          p.value = value;
          p.turn.store(at + 1);  // Sequentially consistent with waking a sleeper, see `parker`.
          return true;
        }
      } else if (turn < at) {
        return false;
      } else {
        at = end_.load(std::memory_order_relaxed);
      }
    }
  }
  /// @returns False if it is empty, or the next place is being written.
  bool pop(T& value) noexcept {
    place& p = places_[begin_ & mask_];
    if (p.turn.load() != begin_ + 1) return false;
    value = p.value;
    p.turn.store(begin_ + mask_ + 1, std::memory_order_release);
    ++begin_;
    return true;
  }
  /// Whether a value was pushed, or is being pushed. For the popping thread.
  [[nodiscard]] bool has_any() const noexcept {
    return places_[begin_ & mask_].turn.load() == begin_ + 1 || end_.load() != begin_;
  }

 private:
  struct place {
    std::atomic<std::size_t> turn{0};
    T value{};
  };

  std::size_t mask_;
  std::unique_ptr<place[]> places_;
  alignas(64) std::atomic<std::size_t> end_{0};
  alignas(64) std::size_t begin_ = 0;
};

}  // namespace cohort::engine
