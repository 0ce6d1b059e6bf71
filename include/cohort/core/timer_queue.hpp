// SPDX-License-Identifier: Apache-2.0
/// @file
/// One timer for each of a dense set of slots, ordered by due time.
#pragma once

#include <cohort/core/indexed_heap.hpp>
#include <cohort/core/time.hpp>

#include <cstddef>
#include <cstdint>

namespace cohort {

/// One timer a slot. Timers due at the same instant fire in the order they were armed.
class timer_queue {
 public:
  explicit timer_queue(std::size_t slots = 0) : heap_{slots + 1} { heap_.set(slots, never); }

  /// Slots that go away must not be armed.
  void resize(std::size_t slots) {
    heap_.erase(this->slots());
    heap_.resize(slots + 1);
    heap_.set(slots, never);
  }
  [[nodiscard]] std::size_t slots() const noexcept { return heap_.slots() - 1; }

  /// Arms, or re-arms, the timer of a slot. Arming with `never` disarms.
  void arm(std::size_t slot, time_point at) noexcept {
    if (at == never) {
      heap_.erase(slot);
    } else {
      heap_.set(slot, at);
    }
  }
  void disarm(std::size_t slot) noexcept { heap_.erase(slot); }
  /// Arms the timer of a slot unless it is due at that instant already.
  [[gnu::always_inline]] void keep(std::size_t slot, time_point at) noexcept {
    if (!heap_.set_in_place(slot, at)) keep_elsewhere(slot, at);
  }

  [[nodiscard]] bool is_armed(std::size_t slot) const noexcept { return heap_.contains(slot); }
  /// When a slot's timer is due, or `never`.
  [[nodiscard]] time_point due(std::size_t slot) const noexcept {
    return heap_.contains(slot) ? heap_.key(slot) : never;
  }
  /// When the first timer is due, or `never`.
  [[nodiscard]] time_point next() const noexcept { return heap_.top_key(); }
  /// The slot with the earliest timer. At least one must be armed.
  [[nodiscard]] std::uint32_t next_slot() const noexcept { return heap_.top(); }

  /// Disarms and returns the first slot due at or before `now`, or `none`.
  static constexpr std::uint32_t none = indexed_heap<time_point>::absent;
  [[nodiscard]] std::uint32_t pop_due(time_point now) noexcept {
    if (next() > now) return none;
    const std::uint32_t slot = heap_.top();
    if (slot == slots()) return none;  // No timer is armed.
    heap_.erase(slot);
    return slot;
  }

 private:
  [[gnu::noinline]] void keep_elsewhere(std::size_t slot, time_point at) noexcept {
    if (due(slot) != at) arm(slot, at);
  }

  // The extra slot after the last has the key `never`, so the heap is never empty.
  indexed_heap<time_point> heap_;
};

}  // namespace cohort
