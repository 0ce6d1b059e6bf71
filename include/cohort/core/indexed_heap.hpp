// SPDX-License-Identifier: Apache-2.0
/// @file
/// A priority queue over a dense set of slots; their keys may change.
#pragma once

#include <cohort/core/assert.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace cohort {

/// A set of slots 0 to n − 1, each with at most one key, ordered by key and, at equal keys, by the
/// time they were set, oldest first. An indexed 4-ary heap: setting, changing and removing cost
/// O(log n), the first costs O(1), nothing allocates after `resize`. Thread safety: none.
/// @tparam Order Type that counts calls of `set`. When it is exhausted, one call costs O(n log n);
///               it must hold more values than there are slots.
template <std::totally_ordered Key, std::unsigned_integral Order = std::uint32_t>
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
    if (!set_in_place(slot, key)) move(slot, key);
  }
  /// Sets the key of a slot if its place in the heap stays the same, as is common for a small
  /// decrease. @returns Whether the key was set.
  [[gnu::always_inline]] bool set_in_place(std::size_t slot, const Key& key) noexcept {
    COHORT_ASSERT(slot < position_.size());
    const std::uint32_t at = position_[slot];
    if (at == absent || !(key < heap_[at].key) || (at > 0 && key < heap_[parent(at)].key) ||
        next_order_ == last_order) {
      return false;
    }
    heap_[at].key = key;
    heap_[at].order = next_order_++;
    return true;
  }

  /// Removes a slot's key, if it has one.
  void erase(std::size_t slot) noexcept {
    if (position_[slot] != absent) remove(slot);
  }

 private:
  static constexpr Order last_order = std::numeric_limits<Order>::max();

  /// Four to a cache line: the children of one.
  struct entry {
    Key key;
    Order order;
    std::uint32_t slot;
    friend bool operator<(const entry& a, const entry& b) noexcept {
      if (a.key == b.key) [[unlikely]]
        return a.order < b.order;
      return a.key < b.key;
    }
  };

  static std::size_t parent(std::size_t i) noexcept { return (i - 1) / 4; }

  void place(std::size_t i, const entry& e) noexcept {
    heap_[i] = e;
    position_[e.slot] = static_cast<std::uint32_t>(i);
  }

  /// A separate function keeps `set` short for the common case, a small decrease of a key.
  [[gnu::noinline]] void move(std::size_t slot, const Key& key) noexcept {
    if (next_order_ == last_order) count_anew();
    const entry e{key, next_order_++, static_cast<std::uint32_t>(slot)};
    const std::uint32_t at = position_[slot];
    if (at == absent) {
      heap_.push_back(e);  // Within the capacity reserved by resize().
      rise(heap_.size() - 1, e);
    } else if (key < heap_[at].key) {
      rise(at, e);
    } else {
      sift_down(at, e);
    }
  }

  void remove(std::size_t slot) noexcept {
    const std::uint32_t at = position_[slot];
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

  /// Renumbers the entries from 0 when the values of `Order` are exhausted.
  void count_anew() noexcept {
    std::sort(heap_.begin(), heap_.end());  // A sorted array is a heap.
    next_order_ = 0;
    for (entry& e : heap_) {
      position_[e.slot] = next_order_;
      e.order = next_order_++;
    }
  }

  /// `sift_up` for the newest entry, which comes after all others with its key.
  void rise(std::size_t i, const entry& e) noexcept {
    while (i > 0 && e.key < heap_[parent(i)].key) {
      place(i, heap_[parent(i)]);
      i = parent(i);
    }
    place(i, e);
  }

  void sift_up(std::size_t i, const entry& e) noexcept {
    while (i > 0 && e < heap_[parent(i)]) {
      place(i, heap_[parent(i)]);
      i = parent(i);
    }
    place(i, e);
  }

  void sift_down(std::size_t i, const entry& e) noexcept {
    const entry* const heap = heap_.data();
    const std::size_t n = heap_.size();
    std::size_t first = 4 * i + 1;
    for (; first + 3 < n; first = 4 * i + 1) {  // In pairs, without branches to mispredict.
      const std::size_t a = first + (heap[first + 1] < heap[first]);
      const std::size_t b = first + 2 + (heap[first + 3] < heap[first + 2]);
      const std::size_t least = heap[b] < heap[a] ? b : a;
      if (!(heap[least] < e)) return place(i, e);
      place(i, heap[least]);
      i = least;
    }
    if (first < n) {  // The last node may have fewer than four children.
      std::size_t least = first;
      for (std::size_t c = first + 1; c < n; ++c) {
        if (heap[c] < heap[least]) least = c;
      }
      if (heap[least] < e) {
        place(i, heap[least]);
        i = least;
      }
    }
    place(i, e);
  }

  std::vector<entry> heap_;
  std::vector<std::uint32_t> position_;
  Order next_order_ = 0;
};

}  // namespace cohort
