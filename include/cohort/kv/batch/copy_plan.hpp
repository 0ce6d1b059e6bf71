// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which columns to copy where, as data: the decode batch says it, who owns the memory does it.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::kv {

/// What a copy connects. Batch columns are physical: 0 to capacity − 1 of one slot.
enum class copy_kind : std::uint8_t {
  enter,   ///< From packed columns of `sequence` into the batch.
  leave,   ///< From the batch into packed columns of `sequence`.
  shift,   ///< From one place of the batch to another, of the same memory; no overlap.
  resize,  ///< From the old memory of the batch to the new one; see `copy_plan::capacity`.
};

/// `count` consecutive columns of one slot: of every layer, of keys and values, of every head.
struct column_copy {
  copy_kind kind = copy_kind::enter;
  std::uint32_t from_slot = 0;    ///< Not of `enter`.
  std::uint32_t to_slot = 0;      ///< Not of `leave`.
  std::uint32_t from_column = 0;  ///< Packed index if `enter`, else physical.
  std::uint32_t to_column = 0;    ///< Packed index if `leave`, else physical.
  std::uint32_t count = 0;        ///< At least 1; never wraps around.
  std::uint64_t storage = 0;      ///< The packed columns, of `enter` and `leave`.

  friend bool operator==(const column_copy&, const column_copy&) = default;
};

/// The copies of one operation, in the order in which they must run. If `capacity()` is not 0 the
/// batch needs memory of that many columns a slot: make it first, run the copies (those of kind
/// `resize` read the old memory, all others the new one), then free the old memory. If `rows()` is
/// not 0 it is the new number of slots: if there are more than before, make memory of the new ones
/// first; if fewer, that of the slots from there on is not needed once the copies have run. Reuse a
/// plan: after the first growth it allocates nothing. Thread safety: none.
class copy_plan {
 public:
  explicit copy_plan(std::size_t copies = 64) { copies_.reserve(copies); }

  void clear() noexcept {
    copies_.clear();
    capacity_ = 0;
    rows_ = 0;
  }
  [[nodiscard]] bool empty() const noexcept {
    return copies_.empty() && capacity_ == 0 && rows_ == 0;
  }
  [[nodiscard]] std::span<const column_copy> copies() const noexcept { return copies_; }
  /// New columns a slot, or 0: as before.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  /// New number of slots, or 0: as before.
  [[nodiscard]] std::uint32_t rows() const noexcept { return rows_; }

  void add(const column_copy& c) { copies_.push_back(c); }
  void set_capacity(std::uint32_t columns) noexcept { capacity_ = columns; }
  void set_rows(std::uint32_t rows) noexcept { rows_ = rows; }

 private:
  std::vector<column_copy> copies_;
  std::uint32_t capacity_ = 0;
  std::uint32_t rows_ = 0;
};

}  // namespace cohort::kv
