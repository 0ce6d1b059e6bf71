// SPDX-License-Identifier: Apache-2.0
/// @file
/// The basic types of staged batching: requests in slots, batch ids, items and the queues between
/// stages.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cohort::batching {

/// Names a row of the batch table. Never used twice; ordered by creation.
using batch_id = strong_id<struct batch_tag, std::uint64_t>;
inline constexpr batch_id no_batch{UINT64_MAX};

/// No buffer set is bound yet.
inline constexpr std::uint32_t no_set = UINT32_MAX;

/// A request as staged batching sees it. The caller owns the object that the tag refers to.
struct staged_request {
  std::uint64_t tag = 0;     ///< The caller's name for it; unique among those in the pipeline.
  time_point arrival{};      ///< When it arrived.
  std::uint32_t bucket = 0;  ///< Class of its input size, from 0, in increasing size.
};

/// How a request continues after a stage, decided from the stage's output.
enum class verdict : std::uint8_t {
  go_on,      ///< It continues with the next stage.
  skip_next,  ///< It skips the next stage; this stage's output passes unchanged.
  leave,      ///< It exits early with its present result, completed.
};

/// Work for a stage: the slots [start, start + count) of a row.
struct item {
  batch_id batch = no_batch;
  std::uint32_t start = 0;
  std::uint32_t count = 0;
  friend bool operator==(const item&, const item&) = default;
};

/// Why an operation on the batch table was refused. Nothing has changed then.
enum class meta_refusal : std::uint8_t {
  none,             ///< It was done.
  empty,            ///< No requests were given.
  table_full,       ///< As many rows exist as the table can hold.
  too_large,        ///< The row would exceed the largest batch.
  not_latest,       ///< No row exists, or the one named is not the latest.
  no_stretch,       ///< A split is foreseen for the row, or it came from one.
  too_old,          ///< The row has run too long to grow.
  issued_too_far,   ///< The row has entered a stage too late in the model to grow.
  no_such_batch,    ///< The row has ended.
  not_at_boundary,  ///< Not all of the row stands between the stage and the next.
  bad_sizes,        ///< Fewer than two parts, an empty one, or their sum is not the row's size.
  no_such_slot,     ///< The request is not in a row, or has ended there.
};

[[nodiscard]] constexpr std::string_view to_string(meta_refusal r) noexcept {
  constexpr std::string_view names[] = {
      "none",          "empty",           "table_full", "too_large",
      "not_latest",    "no_stretch",      "too_old",    "issued_too_far",
      "no_such_batch", "not_at_boundary", "bad_sizes",  "no_such_slot"};
  return names[static_cast<std::size_t>(r)];
}

/// First in, first out: the items that wait for one stage. A ring that doubles when it is full, so
/// that nothing allocates once the largest backlog has been seen. Thread safety: none.
class item_queue {
 public:
  /// @param capacity Items to make room for at once.
  explicit item_queue(std::size_t capacity = 16) : ring_(std::bit_ceil(capacity + 1)) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// The item at a position, counted from the oldest. `position` < size().
  [[nodiscard]] const item& operator[](std::size_t position) const noexcept {
    COHORT_ASSERT(position < size_);
    return ring_[(head_ + position) & (ring_.size() - 1)];
  }
  [[nodiscard]] item& operator[](std::size_t position) noexcept {
    COHORT_ASSERT(position < size_);
    return ring_[(head_ + position) & (ring_.size() - 1)];
  }

  void push(const item& i) {
    if (size_ == ring_.size()) grow();
    ring_[(head_ + size_++) & (ring_.size() - 1)] = i;
  }

  /// Removes and returns the item at a position. O(position).
  item take(std::size_t position = 0) noexcept {
    const item taken = (*this)[position];
    for (std::size_t i = position; i > 0; --i) (*this)[i] = (*this)[i - 1];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --size_;
    return taken;
  }

 private:
  void grow() {
    std::vector<item> larger(2 * ring_.size());
    for (std::size_t i = 0; i < size_; ++i) larger[i] = (*this)[i];
    ring_ = std::move(larger);
    head_ = 0;
  }

  std::vector<item> ring_;
  std::size_t head_ = 0;
  std::size_t size_ = 0;
};

}  // namespace cohort::batching
