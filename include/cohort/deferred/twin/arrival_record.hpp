// SPDX-License-Identifier: Apache-2.0
/// @file
/// The most recent arrivals: `arrival_record`.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::deferred {

/// One request as a trial needs it.
struct recorded_arrival {
  time_point at;
  duration slack;  ///< From arrival to deadline.
  model_id model;
};

/// A ring of the last arrivals. `add` is O(1). Allocates only when made. Thread safety: none.
class arrival_record {
 public:
  /// @param capacity Arrivals kept; at least 1, rounded up to a power of two; 24 bytes each.
  explicit arrival_record(std::size_t capacity = 65536) {
    expects(capacity > 0, "arrival_record: capacity must be at least 1");
    ring_.resize(std::bit_ceil(capacity));
    mask_ = ring_.size() - 1;
  }

  void add(time_point at, duration slack, model_id m) noexcept {
    ring_[added_++ & mask_] = {at, slack, m};
  }
  [[nodiscard]] std::size_t size() const noexcept { return std::min(added_, ring_.size()); }
  /// Arrivals since the record was made.
  [[nodiscard]] std::uint64_t added() const noexcept { return added_; }
  /// From the oldest, 0, to the newest, size() − 1.
  [[nodiscard]] const recorded_arrival& operator[](std::size_t i) const noexcept {
    return ring_[(added_ - size() + i) & mask_];
  }

  /// How many of the newest arrivals to look at: those of the last `length`, but at least `least`
  /// unless they are older than `most`. O(log size).
  [[nodiscard]] std::size_t recent(time_point now, duration length, std::size_t least,
                                   duration most) const noexcept {
    return std::min(since(now - most), std::max(since(now - length), std::min(least, size())));
  }

  /// How many arrived at or after an instant. O(log size).
  [[nodiscard]] std::size_t since(time_point t) const noexcept {
    std::size_t low = 0;
    std::size_t high = size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if ((*this)[middle].at < t) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return size() - low;
  }

 private:
  std::vector<recorded_arrival> ring_;
  std::size_t mask_ = 0;  // Size − 1: used for every request.
  std::uint64_t added_ = 0;
};

}  // namespace cohort::deferred
