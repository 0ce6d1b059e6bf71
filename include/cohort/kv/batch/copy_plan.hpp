// SPDX-License-Identifier: Apache-2.0
/// @file
/// Column copies as data: the decode batch lists them, and the owner of the memory carries them
/// out.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::kv {

/// The two ends of a copy. Batch columns are physical: 0 to capacity − 1 of one slot.
enum class copy_kind : std::uint8_t {
  enter,   ///< From packed columns of `sequence` into the batch.
  leave,   ///< From the batch into packed columns of `sequence`.
  shift,   ///< From one place of the batch to another, of the same memory; no overlap.
  resize,  ///< From the old memory of the batch to the new one; see `copy_plan::capacity`.
};

/// `count` consecutive columns of one slot: all layers, both keys and values, all heads.
struct column_copy {
  copy_kind kind = copy_kind::enter;
  std::uint32_t from_slot = 0;    ///< Unused by `enter`.
  std::uint32_t to_slot = 0;      ///< Unused by `leave`.
  std::uint32_t from_column = 0;  ///< Packed index if `enter`, else physical.
  std::uint32_t to_column = 0;    ///< Packed index if `leave`, else physical.
  std::uint32_t count = 0;        ///< At least 1; never wraps around.
  std::uint64_t storage = 0;      ///< The packed columns, for `enter` and `leave`.

  friend bool operator==(const column_copy&, const column_copy&) = default;
};

/// The copies of one operation, in the order they must run. If `capacity()` is not 0, the batch
/// needs memory for that many columns per slot: allocate it first, run the copies (copies of kind
/// `resize` read the old memory, all others the new), then free the old memory. If `rows()` is not
/// 0, it is the new number of slots: if it grew, allocate memory for the new slots first; if it
/// shrank, free the memory of the slots beyond it once the copies have run. Reuse a plan: after the
/// first growth it allocates nothing. Thread safety: none.
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
  /// New number of columns per slot; 0: unchanged.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  /// New number of slots; 0: unchanged.
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
