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
/// for all, `push` is O(1); a request with an earlier deadline than k waiting ones costs O(k).
/// Holds no ownership. Allocates only when constructed. Thread safety: none.
class request_queue {
 public:
  /// @param capacity Most requests that may wait; at least 1. Memory: 16 bytes each, rounded up to
  ///                 a power of two.
  /// @throws config_error If `capacity` is 0.
  explicit request_queue(std::uint32_t capacity) : capacity_{capacity} {
    expects(capacity > 0, "request_queue: capacity must be at least 1");
    ring_.resize(std::bit_ceil(std::size_t{capacity}));
    mask_ = ring_.size() - 1;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] bool is_full() const noexcept { return size_ == capacity_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  /// The deadline at a position, counted from the earliest. `position` < size().
  [[nodiscard]] time_point deadline(std::uint32_t position) const noexcept {
    return at(position).deadline;
  }
  [[nodiscard]] request& operator[](std::uint32_t position) const noexcept {
    return *at(position).waiting;
  }

  /// Adds a request under a deadline, which may differ from its own by network delays. Not if full.
  void push(request& r, time_point deadline) noexcept {
    COHORT_ASSERT(!is_full());
    std::uint32_t position = size_++;
    for (; position > 0 && at(position - 1).deadline > deadline; --position) {
      at(position) = at(position - 1);
    }
    at(position) = entry{deadline, &r};
  }

  /// Removes and returns the request with the earliest deadline. Not if empty.
  request& pop() noexcept {
    COHORT_ASSERT(size_ > 0);
    request& first = *at(0).waiting;
    head_ = (head_ + 1) & mask_;
    --size_;
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
    return true;
  }

 private:
  struct entry {
    time_point deadline;
    request* waiting = nullptr;
  };

  [[nodiscard]] entry& at(std::uint32_t position) noexcept {
    return ring_[(head_ + position) & mask_];
  }
  [[nodiscard]] const entry& at(std::uint32_t position) const noexcept {
    return ring_[(head_ + position) & mask_];
  }

  std::vector<entry> ring_;
  std::size_t mask_ = 0;
  std::size_t head_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t capacity_;
};

}  // namespace cohort::deferred
