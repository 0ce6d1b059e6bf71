// SPDX-License-Identifier: Apache-2.0
/// @file
/// A priority queue over a dense set of slots whose keys may change.
#pragma once

#include <cohort/core/assert.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort {

/// A set of slots 0 to n − 1, each with at most one key, ordered by key and, at equal keys, by the
/// order in which they were set. An indexed 4-ary heap: setting, changing and removing cost
/// O(log n), the first costs O(1), nothing allocates after `resize`. Thread safety: none.
template <class Key>
class indexed_heap {
 public:
  static constexpr std::uint32_t absent = UINT32_MAX;

  explicit indexed_heap(std::size_t slots = 0) { resize(slots); }

  /// Makes room for `slots` slots. Slots that go away must be absent. Allocates.
  void resize(std::size_t slots) {
    position_.resize(slots, absent);
    heap_.reserve(slots);
  }

  [[nodiscard]] std::size_t slots() const noexcept { return position_.size(); }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  [[nodiscard]] bool contains(std::size_t slot) const noexcept { return position_[slot] != absent; }
  /// The slot that comes first. The heap must not be empty.
  [[nodiscard]] std::uint32_t top() const noexcept { return heap_.front().slot; }
  [[nodiscard]] const Key& top_key() const noexcept { return heap_.front().key; }
  /// The key of a slot, which must be present.
  [[nodiscard]] const Key& key(std::size_t slot) const noexcept {
    return heap_[position_[slot]].key;
  }

  /// Sets or changes the key of a slot. A change counts as the newest among equal keys.
  void set(std::size_t slot, const Key& key) noexcept {
    COHORT_ASSERT(slot < position_.size());
    const entry e{key, next_order_++, static_cast<std::uint32_t>(slot)};
    const std::uint32_t at = position_[slot];
    if (at == absent) {
      heap_.push_back(e);  // Within the capacity reserved by resize().
      sift_up(heap_.size() - 1, e);
    } else if (e < heap_[at]) {
      sift_up(at, e);
    } else {
      sift_down(at, e);
    }
  }

  /// Removes a slot's key, if it has one.
  void erase(std::size_t slot) noexcept {
    const std::uint32_t at = position_[slot];
    if (at == absent) return;
    position_[slot] = absent;
    const entry last = heap_.back();
    heap_.pop_back();
    if (at == heap_.size()) return;
    if (at > 0 && last < heap_[parent(at)]) {
      sift_up(at, last);
    } else {
      sift_down(at, last);
    }
  }

 private:
  struct entry {
    Key key;
    std::uint64_t order;
    std::uint32_t slot;
    friend bool operator<(const entry& a, const entry& b) noexcept {
      return a.key < b.key || (!(b.key < a.key) && a.order < b.order);
    }
  };

  static std::size_t parent(std::size_t i) noexcept { return (i - 1) / 4; }

  void place(std::size_t i, const entry& e) noexcept {
    heap_[i] = e;
    position_[e.slot] = static_cast<std::uint32_t>(i);
  }

  void sift_up(std::size_t i, const entry& e) noexcept {
    while (i > 0 && e < heap_[parent(i)]) {
      place(i, heap_[parent(i)]);
      i = parent(i);
    }
    place(i, e);
  }

  void sift_down(std::size_t i, const entry& e) noexcept {
    const std::size_t n = heap_.size();
    for (;;) {
      const std::size_t first = 4 * i + 1;
      if (first >= n) break;
      const std::size_t last = first + 4 < n ? first + 4 : n;
      std::size_t least = first;
      for (std::size_t c = first + 1; c < last; ++c) {
        if (heap_[c] < heap_[least]) least = c;
      }
      if (!(heap_[least] < e)) break;
      place(i, heap_[least]);
      i = least;
    }
    place(i, e);
  }

  std::vector<entry> heap_;
  std::vector<std::uint32_t> position_;
  std::uint64_t next_order_ = 0;
};

}  // namespace cohort
