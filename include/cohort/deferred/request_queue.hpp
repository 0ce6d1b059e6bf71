// SPDX-License-Identifier: Apache-2.0
/// @file
/// The waiting requests of one model, by deadline.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// Requests ordered by deadline, equal deadlines in order of arrival. A ring of (deadline, pointer)
/// records, so that policies can look at any position without touching the requests. With one SLO
/// for all requests, `push` is O(1); a request with an earlier deadline than k waiting ones costs
/// O(k). Owns no request. Allocates only when constructed. Thread safety: none.
class request_queue {
 public:
  /// @param capacity Maximum number of requests; at least 1. Memory: 16 bytes each, rounded up to a
  /// power of two.
  /// @throws config_error If `capacity` is 0.
  explicit request_queue(std::uint32_t capacity) : capacity_{capacity} {
    expects(capacity > 0, "request_queue: capacity must be at least 1");
    ring_.resize(std::bit_ceil(std::size_t{capacity}));
    mask_ = static_cast<std::uint32_t>(ring_.size() - 1);
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool is_full() const noexcept { return size_ == capacity_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  /// The deadline at a position, counted from the earliest. `position` < size().
  [[nodiscard]] time_point deadline(std::uint32_t position) const noexcept {
    return at(position).deadline;
  }
  /// `deadline(0)` without reading the ring.
  [[nodiscard]] time_point first_deadline() const noexcept { return first_; }
  [[nodiscard]] request& operator[](std::uint32_t position) const noexcept {
    return *at(position).waiting;
  }

  /// Adds a request under a deadline, which may differ from its own by network delays. Not if full.
  void push(request& r, time_point deadline) noexcept {
    COHORT_ASSERT(!is_full());
    entry* const ring = ring_.data();
    const std::uint32_t end = head_ + size_;
    if (size_ == 0) {
      first_ = deadline;
    } else if (ring[(end - 1) & mask_].deadline > deadline) [[unlikely]] {
      return insert(r, deadline);
    }
    ring[end & mask_] = entry{deadline, &r};
    ++size_;
  }

  /// Removes the first `count` requests, at most size(), and passes them to `take(request&)` in
  /// order.
  template <class F>
  void pop(std::uint32_t count, F&& take) noexcept {
    COHORT_ASSERT(count <= size_);
    entry* const ring = ring_.data();
    for (std::uint32_t i = 0; i < count; ++i) {
      request& r = *ring[(head_ + i) & mask_].waiting;
      expect_alive(r);
      take(r);
    }
    size_ -= count;
    // An emptied queue starts again at the front, in lines that are still in the cache.
    head_ = size_ == 0 ? 0 : (head_ + count) & mask_;
    note_first();
  }
  /// Removes and returns the request with the earliest deadline. Must not be empty.
  request& pop() noexcept {
    COHORT_ASSERT(size_ > 0);
    request& first = *at(0).waiting;
    expect_alive(first);
    head_ = (head_ + 1) & mask_;
    --size_;
    note_first();
    return first;
  }

  /// Removes a request that was pushed under `deadline`. O(log n + requests behind it).
  /// @returns Whether it was there.
  bool erase(const request& r, time_point deadline) noexcept {
    std::uint32_t low = 0;
    std::uint32_t high = size_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (at(middle).deadline < deadline) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    while (low < size_ && at(low).waiting != &r) {
      if (at(low).deadline > deadline) return false;
      ++low;
    }
    if (low == size_) return false;
    for (; low + 1 < size_; ++low) at(low) = at(low + 1);
    --size_;
    note_first();
    return true;
  }

 private:
  static void expect_alive([[maybe_unused]] const request& r) noexcept {
    COHORT_ASSERT_USE(r.hold.load(std::memory_order_relaxed) != engine_hold::destroyed,
                      "a request was destroyed before its outcome; keep it until it has ended");
  }

  struct entry {
    time_point deadline;
    request* waiting = nullptr;
  };

  /// Out of line, so that `push` is short when the request goes last.
  [[gnu::noinline]] void insert(request& r, time_point deadline) noexcept {
    std::uint32_t position = size_++;
    for (; position > 0 && at(position - 1).deadline > deadline; --position) {
      at(position) = at(position - 1);
    }
    at(position) = entry{deadline, &r};
    note_first();
  }
  void note_first() noexcept { first_ = at(0).deadline; }  // Meaningless if empty.

  [[nodiscard]] entry& at(std::uint32_t position) noexcept {
    return ring_[(head_ + position) & mask_];
  }
  [[nodiscard]] const entry& at(std::uint32_t position) const noexcept {
    return ring_[(head_ + position) & mask_];
  }

  std::vector<entry> ring_;
  time_point first_;
  std::uint32_t mask_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_;
};

}  // namespace cohort::deferred
