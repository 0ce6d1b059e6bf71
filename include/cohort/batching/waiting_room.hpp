// SPDX-License-Identifier: Apache-2.0
/// @file
/// Requests that wait to enter a pipeline, with its window: which of them may form a row now.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/policy.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace cohort::batching {

/// Options of a waiting room.
struct waiting_room_options {
  std::uint32_t max_waiting = 4096;  ///< At least 1.
  std::uint32_t batch_max = 1;       ///< A window closes early when it holds this many.
  std::uint32_t buckets = 1;         ///< Number of size classes; at least 1.
  /// A window opens with a request that finds none open, and closes after this time; its requests
  /// may enter only then. Unset: all requests may enter at any time. At least 0.
  std::optional<duration> window{};
};

/// Requests in the order of their arrival; the first `eligible` of them may enter.
/// Allocates only while it grows to a length it never had. Thread safety: none.
class waiting_room {
 public:
  /// @throws config_error If an option is outside its range.
  explicit waiting_room(const waiting_room_options& o)
      : max_waiting_{o.max_waiting},
        batch_max_{o.batch_max},
        window_{o.window.value_or(none)},
        mix_(o.buckets) {
    expects(o.max_waiting >= 1, "pipeline: max_waiting must be at least 1");
    expects(o.buckets >= 1, "pipeline: buckets must be at least 1");
    expects(!o.window || *o.window >= duration{0}, "pipeline: window must be at least 0");
    list_.reserve(std::min(o.max_waiting, 4096U));
  }

  [[nodiscard]] const waiting_list& list() const noexcept { return list_; }
  [[nodiscard]] bool has_window() const noexcept { return window_ != none; }
  [[nodiscard]] bool is_open() const noexcept { return closes_ != never; }
  /// When the open window closes, or `never`.
  [[nodiscard]] time_point closes_at() const noexcept { return closes_; }
  /// How many requests may enter, from the oldest.
  [[nodiscard]] std::uint32_t eligible() const noexcept {
    return has_window() ? closed_ : list_.size();
  }

  /// @param r Its bucket is one of the room's.  @returns Whether the request was accepted.
  ///         Amortised O(1).
  bool push(const staged_request& r, time_point now) {
    if (list_.size() >= max_waiting_) return false;
    if (has_window() && !is_open()) closes_ = now + window_;
    meet(r.bucket, now);
    list_.push(r);
    if (has_window() && list_.size() - closed_ == batch_max_) close();
    return true;
  }
  /// Arrivals per millisecond, over the last few hundred; it falls while none arrive. 0 until there
  /// are enough.
  [[nodiscard]] double rate(time_point now) const noexcept {
    if (arrived_ < least_known) return 0;
    // A pause of more than a few gaps is one gap that has not ended.
    const double gap = std::max(gap_ms_, gap_ms_ + (to_ms(now - last_) - 8 * gap_ms_) / memory);
    return gap > 0 ? 1 / gap : 0;  // All arrived at one instant.
  }
  /// Weight of each bucket among the last few hundred arrivals; later ones count more.
  [[nodiscard]] std::span<const std::uint32_t> mix() const noexcept { return mix_; }
  /// Closes a window that is due.
  void advance(time_point now) noexcept {
    if (closes_ <= now) close();
  }
  /// Removes a cancelled request. O(size).
  std::optional<staged_request> cancel(std::uint64_t tag) noexcept {
    for (std::uint32_t i = 0; i < list_.size(); ++i) {
      if (list_[i].tag != tag) continue;
      const staged_request r = take(i);
      if (list_.size() == closed_) closes_ = never;  // The open window is empty.
      return r;
    }
    return std::nullopt;
  }
  /// Moves up to `count` requests that may enter, with a bucket of at most `bucket`, to the end of
  /// `into`. O(size · buckets).
  void gather(std::uint32_t count, std::uint32_t bucket, fill_order fill,
              std::vector<staged_request>& into) {
    const std::size_t full = into.size() + count;
    std::uint32_t reach = eligible();
    if (fill == fill_order::oldest) {
      gather_between(0, bucket, full, reach, into);
      return;
    }
    for (std::uint32_t b = bucket + 1; b-- > 0 && into.size() < full;) {
      gather_between(b, b, full, reach, into);
      if (fill == fill_order::same_bucket) return;
    }
  }

 private:
  void meet(std::uint32_t bucket, time_point now) noexcept {
    if (++mixed_ == most_mixed) {  // Old arrivals count half, and half again.
      mixed_ = 0;
      for (std::uint32_t& n : mix_) mixed_ += n /= 2;
    }
    COHORT_ASSERT(bucket < mix_.size());
    ++mix_[bucket];
    if (arrived_ > 0) {
      gap_ms_ += (to_ms(now - last_) - gap_ms_) / std::min<double>(memory, arrived_);
    }
    last_ = now;
    arrived_ = std::min(arrived_ + 1, memory);
  }
  void close() noexcept {
    closes_ = never;
    closed_ = list_.size();
  }
  staged_request take(std::uint32_t i) noexcept {
    if (i < closed_) --closed_;
    return list_.take(i);
  }
  void gather_between(std::uint32_t least, std::uint32_t most, std::size_t full,
                      std::uint32_t& reach, std::vector<staged_request>& into) {
    for (std::uint32_t i = 0; i < reach && into.size() < full;) {
      if (list_[i].bucket < least || list_[i].bucket > most) {
        ++i;
        continue;
      }
      into.push_back(take(i));
      --reach;
    }
  }

  static constexpr duration none{-1};
  static constexpr std::uint32_t least_known = 16;
  static constexpr std::uint32_t memory = 256;  // Arrivals that the rate is based on.
  static constexpr std::uint32_t most_mixed = 512;

  std::uint32_t max_waiting_;
  std::uint32_t batch_max_;
  duration window_;
  waiting_list list_;
  std::uint32_t closed_ = 0;  // Requests from closed windows, from the oldest.
  time_point closes_ = never;
  std::vector<std::uint32_t> mix_;
  std::uint32_t mixed_ = 0;    // Sum of those.
  time_point last_{};          // Arrival.
  double gap_ms_ = 0;          // Mean.
  std::uint32_t arrived_ = 0;  // No more than are remembered.
};

}  // namespace cohort::batching
