// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where logical columns lie in memory: a ring, or a line with slack.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace cohort::kv {

/// How logical columns map to memory.
enum class column_layout : std::uint8_t {
  ring,  ///< A column lies at its number modulo the capacity. Nothing moves unless the window
         ///< outgrows the capacity. A slot's columns are one or two runs of memory.
  line,  ///< One run, for kernels that need it. The capacity is at least twice the window, and now
         ///< and then the window slides back to the middle.
};

/// Consecutive physical columns.
struct column_run {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  friend bool operator==(const column_run&, const column_run&) = default;
};

/// The axis of columns: where it ends, how much memory it has, and where each column lies. Columns
/// are appended at the right end. On the left, the window may reach back over columns that were
/// written before, as long as the capacity lasts. All operations are O(1). Thread safety: none.
class column_window {
 public:
  /// Columns exist before the first one: an insertion may reach to the left of everything.
  static constexpr logical_column origin = logical_column{1} << 40U;

  /// @param capacity Columns to begin with: a power of two, 1 to 2^30.
  /// @throws config_error If it is not.
  column_window(column_layout layout, std::uint32_t capacity)
      : layout_{layout}, capacity_{capacity}, base_{origin - capacity / 2} {
    expects(std::has_single_bit(capacity) && capacity <= largest,
            "column_window: columns must be a power of two from 1 to 2^30");
  }

  [[nodiscard]] column_layout layout() const noexcept { return layout_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// The next column to write; never decreases.
  [[nodiscard]] logical_column end() const noexcept { return end_; }

  /// The memory column of a logical one. `c` must be one of the last `capacity()` columns, or one
  /// that is about to be appended after `reserve`.
  [[nodiscard]] std::uint32_t physical(logical_column c) const noexcept {
    return static_cast<std::uint32_t>(layout_ == column_layout::ring ? c & (capacity_ - 1U)
                                                                     : c - base_);
  }
  /// Calls f(column_run) for the one or two runs of memory that hold [first, last), in order.
  template <class F>
  void for_each_run(logical_column first, logical_column last, F f) const {
    while (first != last) {
      const std::uint32_t at = physical(first);
      const auto count =
          static_cast<std::uint32_t>(std::min<logical_column>(last - first, capacity_ - at));
      f(column_run{at, count});
      first += count;
    }
  }

  /// The capacity needed for a window of `span` columns; at least the present one.
  [[nodiscard]] std::uint32_t capacity_for(std::uint64_t span) const noexcept {
    const std::uint64_t least = layout_ == column_layout::ring ? span : 2 * span;
    COHORT_ASSERT(least <= largest);
    return std::max(capacity_,
                    static_cast<std::uint32_t>(std::bit_ceil(std::max<std::uint64_t>(1, least))));
  }
  /// Whether a window of `span` columns, including `appended` columns still to be appended, needs a
  /// move.
  [[nodiscard]] bool needs_move(std::uint64_t span, std::uint32_t appended) const noexcept {
    return capacity_for(span) != capacity_ ||
           (layout_ == column_layout::line && end_ - base_ + appended > capacity_);
  }

  /// Makes room for such a window and changes the mapping. The caller copies the live columns from
  /// their positions in `before`, a copy of this object made earlier.
  void reserve(std::uint64_t span, std::uint32_t appended) noexcept {
    if (needs_move(span, appended)) set_capacity(capacity_for(span));
  }
  /// Sets a new capacity, which may be smaller. The window of a line is put in the middle.
  void set_capacity(std::uint32_t columns) noexcept {
    capacity_ = columns;
    base_ = end_ - columns / 2;
  }

  /// Takes the next columns; they must have been reserved. @returns The first of them.
  logical_column append(std::uint32_t columns) noexcept {
    const logical_column first = end_;
    end_ += columns;
    return first;
  }

 private:
  static constexpr std::uint32_t largest = 1U << 30U;

  column_layout layout_;
  std::uint32_t capacity_;
  logical_column end_ = origin;
  logical_column base_;  // Of a line: the logical column at memory column 0.
};

}  // namespace cohort::kv
