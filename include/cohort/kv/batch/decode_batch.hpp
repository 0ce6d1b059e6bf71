// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decode batch: sequences that enter, step together and leave, on one axis of columns.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/column_window.hpp>
#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/decode_slot.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::kv {

/// How a decode batch is made.
struct batch_options {
  std::uint32_t slots = 8;     ///< Rows; 1 to 65 536.
  std::uint32_t columns = 64;  ///< Capacity to begin with; a power of two, 1 to 2^30.
  column_layout layout = column_layout::ring;
};

/// A prompt that enters by shaping, and its slot. In `who`, `length` and `produced` are 0.
struct shaped_entry {
  std::uint32_t slot = 0;
  prepared who{};
};

/// The columns that an iteration appended.
struct appended_columns {
  logical_column first = 0;
  std::uint32_t count = 0;
};

/// A batch of sequences that decode together. It holds no keys and values: it records which columns
/// belong to each sequence and lists the columns to copy (`copy_plan`); the owner of the memory
/// carries out the plan. All rows end at the same column, and each row begins at its own. So a
/// sequence enters a running batch by being laid against that end (Baton, embedding), over as many
/// columns as it has: either to the right of the window's begin, or growing the window on its left.
/// When the longest row leaves, the window is shorter at once, because its length is the longest
/// span of a live row.
///
/// One iteration: `step` (or `shape`, with prompts), run the plan, compute, then `produce` for each
/// live slot, `remove` finished sequences, and `insert` new ones. Never read keys and values
/// outside a slot's own columns. Source: Baton, sections 4 and 5; docs/kv/decode_batch.md.
/// Complexity: O(slots) an operation, plus its copies. Allocates only to grow a slot's list of
/// holes or the caller's plan. Thread safety: none; it belongs to the stream that decodes.
class decode_batch {
 public:
  /// @throws config_error If an option is outside its range.
  explicit decode_batch(const batch_options& o)
      : window_{o.layout, o.columns}, first_capacity_{o.columns} {
    expects(o.slots >= 1 && o.slots <= 65536, "decode_batch: slots must be in 1 to 65536");
    slots_.resize(o.slots);
  }

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(slots_.size());
  }
  [[nodiscard]] std::uint32_t live() const noexcept { return live_; }
  [[nodiscard]] const decode_slot& operator[](std::uint32_t slot) const noexcept {
    return slots_[slot];
  }
  [[nodiscard]] bool is_free(std::uint32_t slot) const noexcept {
    return !slots_[slot].live && !slots_[slot].pinned;
  }
  /// The lowest free slot, or size().
  [[nodiscard]] std::uint32_t free_slot() const noexcept;

  /// L: columns from the earliest start of a live slot to the end; 0 if none is live.
  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] const column_window& window() const noexcept { return window_; }
  /// Columns from a slot's start to the end, holes included.
  [[nodiscard]] std::uint64_t span(std::uint32_t slot) const noexcept {
    return window_.end() - slots_[slot].start;
  }
  /// Calls f(column_run) for the runs of memory that hold the slot's own columns, in order of
  /// position. Without holes: one or two (a line: one).
  template <class F>
  void for_each_run(std::uint32_t slot, F f) const {
    slots_[slot].for_each_run(window_, f);
  }

  /// Lays packed columns against the end. `slot` must be free, and `who.length` at least 1.
  void insert(std::uint32_t slot, const prepared& who, copy_plan& plan);

  /// Appends one column to every row, for the next iteration. Each live slot's `length` counts it;
  /// its input is `pending` at position `length − 1`, and the column is `window().physical(first)`.
  appended_columns step(copy_plan& plan) { return append(1, {}, plan); }

  /// Appends the columns of an iteration that also carries prompts: as many as the longest prompt
  /// has. A new row is right-aligned in them; an old row owns the last one, and the others are its
  /// hole. The entries' slots must be free, and their prompts at least 1 token.
  appended_columns shape(std::span<const shaped_entry> entries, copy_plan& plan);

  /// Notes the token that an iteration produced for a live slot.
  void produce(std::uint32_t slot, token_id token) noexcept {
    decode_slot& s = slots_[slot];
    COHORT_ASSERT(s.live && s.who.length + 1 == s.who.prompt + s.who.produced + 1);
    s.who.pending = token;
    ++s.who.produced;
  }

  /// Empties a live slot after its sequence finished or was cancelled. O(slots), no copy. @returns
  /// The sequence's last state.
  prepared remove(std::uint32_t slot) noexcept;

  /// Empties a live slot and packs its own columns into `storage`, without holes. Pass the result
  /// to `insert` to continue the sequence. Call it only between two iterations, when the counting
  /// law holds.
  /// @param pin Keep the slot from being reused until `unpin`, for a copy that takes long.
  prepared preempt(std::uint32_t slot, std::uint64_t storage, kv_place where, copy_plan& plan,
                   bool pin = false);
  void unpin(std::uint32_t slot) noexcept { slots_[slot].pinned = false; }

  /// Changes the number of rows. Live rows beyond the new end move to the lowest free slots, by
  /// copies in the plan. @throws config_error If `slots` is 0 or fewer than the live or pinned
  /// slots.
  void resize(std::uint32_t slots, copy_plan& plan);

  /// Gives memory back: reduces the capacity to the least that holds the window, but not below the
  /// first capacity.
  void trim(copy_plan& plan);

  /// Columns appended, plus those of each insertion.
  [[nodiscard]] std::uint64_t columns_written() const noexcept { return written_; }
  /// Columns of the window moved by growth and by slides, summed over all rows; moves by `trim` and
  /// `resize` are not counted. At most 2 × written + the first capacity.
  [[nodiscard]] std::uint64_t columns_moved() const noexcept { return moved_; }

 private:
  appended_columns append(std::uint32_t columns, std::span<const shaped_entry> entries,
                          copy_plan& plan);
  /// Moves every live row from its position in `before`.
  void relocate(const column_window& before, copy_plan& plan);
  void reserve(std::uint64_t span, std::uint32_t appended, copy_plan& plan);
  void vacate(std::uint32_t slot) noexcept;

  column_window window_;
  std::vector<decode_slot> slots_;
  std::uint64_t length_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t moved_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t first_capacity_;
};

inline std::uint32_t decode_batch::free_slot() const noexcept {
  std::uint32_t slot = 0;
  while (slot < size() && !is_free(slot)) ++slot;
  return slot;
}

inline void decode_batch::relocate(const column_window& before, copy_plan& plan) {
  const bool new_memory = before.capacity() != window_.capacity();
  if (new_memory) plan.set_capacity(window_.capacity());
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!slots_[i].live) continue;
    pair_runs(before, window_, slots_[i],
              [&](std::uint32_t from, std::uint32_t to, std::uint32_t count) {
                plan.add({.kind = new_memory ? copy_kind::resize : copy_kind::shift,
                          .from_slot = i,
                          .to_slot = i,
                          .from_column = from,
                          .to_column = to,
                          .count = count});
              });
  }
}

inline void decode_batch::reserve(std::uint64_t span, std::uint32_t appended, copy_plan& plan) {
  if (!window_.needs_move(span, appended)) return;
  const column_window before = window_;
  window_.reserve(span, appended);
  relocate(before, plan);
  moved_ += length_;
}

inline void decode_batch::insert(std::uint32_t slot, const prepared& who, copy_plan& plan) {
  COHORT_ASSERT(is_free(slot) && who.length >= 1);
  reserve(std::max<std::uint64_t>(length_, who.length), 0, plan);
  decode_slot& s = slots_[slot];
  s.who = who;
  s.start = window_.end() - who.length;
  s.holes.clear();
  s.live = true;
  ++live_;
  length_ = std::max<std::uint64_t>(length_, who.length);
  written_ += who.length;
  std::uint32_t packed = 0;
  for_each_run(slot, [&](column_run r) {
    plan.add({.kind = copy_kind::enter,
              .to_slot = slot,
              .from_column = packed,
              .to_column = r.first,
              .count = r.count,
              .storage = who.storage});
    packed += r.count;
  });
}

inline appended_columns decode_batch::shape(std::span<const shaped_entry> entries,
                                            copy_plan& plan) {
  std::uint32_t longest = 1;
  for (const shaped_entry& e : entries) {
    COHORT_ASSERT(is_free(e.slot) && e.who.prompt >= 1);
    longest = std::max(longest, e.who.prompt);
  }
  return append(longest, entries, plan);
}

inline appended_columns decode_batch::append(std::uint32_t columns,
                                             std::span<const shaped_entry> entries,
                                             copy_plan& plan) {
  reserve(length_ + columns, columns, plan);
  const logical_column first = window_.append(columns);
  for (decode_slot& s : slots_) {
    if (!s.live) continue;
    ++s.who.length;
    if (columns > 1) s.holes.push_back({first, first + columns - 1});
  }
  if (live_ > 0) length_ += columns;
  for (const shaped_entry& e : entries) {
    decode_slot& s = slots_[e.slot];
    COHORT_ASSERT(!s.live);
    s.who = e.who;
    s.who.length = e.who.prompt;
    s.who.produced = 0;
    s.start = window_.end() - e.who.prompt;
    s.holes.clear();
    s.live = true;
    ++live_;
    length_ = std::max<std::uint64_t>(length_, e.who.prompt);
  }
  written_ += columns;
  return {first, columns};
}

inline void decode_batch::vacate(std::uint32_t slot) noexcept {
  slots_[slot].live = false;
  --live_;
  length_ = 0;
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (slots_[i].live) length_ = std::max(length_, span(i));
  }
}

inline prepared decode_batch::remove(std::uint32_t slot) noexcept {
  COHORT_ASSERT(slots_[slot].live);
  vacate(slot);
  return slots_[slot].who;
}

inline prepared decode_batch::preempt(std::uint32_t slot, std::uint64_t storage, kv_place where,
                                      copy_plan& plan, bool pin) {
  decode_slot& s = slots_[slot];
  COHORT_ASSERT(s.live && obeys_counting_law(s.who));
  std::uint32_t packed = 0;
  for_each_run(slot, [&](column_run r) {
    plan.add({.kind = copy_kind::leave,
              .from_slot = slot,
              .from_column = r.first,
              .to_column = packed,
              .count = r.count,
              .storage = storage});
    packed += r.count;
  });
  COHORT_ASSERT(packed == s.who.length);
  vacate(slot);
  s.pinned = pin;
  prepared out = s.who;
  out.storage = storage;
  out.where = where;
  out.was_running = true;
  return out;
}

inline void decode_batch::resize(std::uint32_t slots, copy_plan& plan) {
  expects(slots >= 1 && slots <= 65536, "decode_batch: slots must be in 1 to 65536");
  std::uint32_t used = live_;
  for (const decode_slot& s : slots_) used += s.pinned ? 1U : 0U;
  expects(used <= slots, "decode_batch: slots must be at least the number of those in use");
  for (std::uint32_t from = slots; from < size(); ++from) {
    expects(!slots_[from].pinned, "decode_batch: a pinned slot cannot move");
  }
  for (std::uint32_t from = slots; from < size(); ++from) {
    if (!slots_[from].live) continue;
    const std::uint32_t to = free_slot();
    std::swap(slots_[from], slots_[to]);
    for_each_run(to, [&](column_run r) {
      plan.add({.kind = copy_kind::shift,
                .from_slot = from,
                .to_slot = to,
                .from_column = r.first,
                .to_column = r.first,
                .count = r.count});
    });
  }
  if (slots != size()) plan.set_rows(slots);
  slots_.resize(slots);
}

inline void decode_batch::trim(copy_plan& plan) {
  column_window least{window_.layout(), first_capacity_};
  const std::uint32_t columns = least.capacity_for(std::max<std::uint64_t>(1, length_));
  if (columns >= window_.capacity()) return;
  const column_window before = window_;
  window_.set_capacity(columns);
  relocate(before, plan);
}

}  // namespace cohort::kv
