// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keys and values in an executor's buffers, and copy plans carried out on its streams.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::kv {

/// The shape of one KV-cache column.
struct kv_shape {
  std::size_t layers = 1;         ///< At least 1.
  std::size_t heads = 1;          ///< KV heads; at least 1.
  std::size_t head_size = 1;      ///< Values per head; at least 1.
  std::size_t element_bytes = 4;  ///< At least 1.

  [[nodiscard]] std::size_t head_bytes() const noexcept { return head_size * element_bytes; }
  [[nodiscard]] std::size_t column_bytes() const noexcept {
    return layers * 2 * heads * head_bytes();
  }
};

/// The batch's memory, a buffer [layer][2][head][column][head_size] for each slot in use, and
/// packed columns of the same layout. Rows that a batch gives up are freed without touching the
/// others. Copies are enqueued on a stream and never waited for. Memory that they still read is
/// freed after they have run, by the next `collect` or allocation. Allocates a buffer for each
/// slot, each growth and each packed sequence, from the executor's pool. Thread safety: none.
template <runtime::executor Executor>
class kv_memory {
 public:
  using stream = typename Executor::stream;
  using buffer = typename Executor::buffer;
  using event = typename Executor::event;

  /// @param columns The batch's first capacity; at least 1.
  /// @throws config_error If a dimension is 0.
  kv_memory(Executor& executor, const kv_shape& shape, std::uint32_t columns)
      : executor_{executor}, shape_{shape}, columns_{columns} {
    expects(shape.column_bytes() > 0, "kv_memory: the shape's dimensions must be at least 1");
    expects(columns >= 1, "kv_memory: columns must be at least 1");
  }

  [[nodiscard]] const kv_shape& shape() const noexcept { return shape_; }
  /// Columns per slot.
  [[nodiscard]] std::uint32_t columns() const noexcept { return columns_; }
  /// Gives a slot memory before work writes to it, if no copy has gone to it: for a shaped prompt.
  void prepare(std::uint32_t i) { use(i); }
  /// The memory of a slot that has been used since the last growth.
  [[nodiscard]] std::byte* slot(std::uint32_t i) const noexcept { return slots_[i].data(); }

  /// Allocates packed storage of `columns` columns. @throws resource_error If the executor has no
  /// room.
  std::uint64_t allocate(std::uint32_t columns);
  [[nodiscard]] std::byte* packed(std::uint64_t storage) const noexcept {
    return packed_[storage].memory.data();
  }
  [[nodiscard]] std::uint32_t packed_columns(std::uint64_t storage) const noexcept {
    return packed_[storage].columns;
  }
  /// Frees packed storage once the work enqueued so far on `s` has run.
  void release(stream& s, std::uint64_t storage) {
    packed_[storage].columns = 0;
    free_.push_back(storage);
    --stored_;
    retire(s, std::exchange(packed_[storage].memory, buffer{}));
  }
  /// Number of packed storages in use.
  [[nodiscard]] std::size_t stored() const noexcept { return stored_; }

  /// Enqueues the copies of a plan.
  /// @throws resource_error If the executor has no room; other exceptions of the executor pass
  /// through. After an exception, the contents of all slots and of the sequences being packed are
  /// lost; later plans may follow as if it had succeeded.
  void execute(stream& s, const copy_plan& plan) {
    const std::uint32_t old_columns = columns_;
    if (plan.capacity() != 0) {
      collect();
      old_.swap(slots_);
      slots_.clear();
      columns_ = plan.capacity();
    }
    try {
      enqueue(s, plan, old_columns);
    } catch (...) {
      let_go(s, plan);
      throw;
    }
    let_go(s, plan);
  }

  /// Frees retired memory once its copies have run.
  void collect() {
    std::erase_if(retired_, [&](const retiree& r) { return executor_.is_done(r.after); });
  }

 private:
  struct storage_entry {
    buffer memory;
    std::uint32_t columns = 0;
  };
  struct retiree {
    buffer memory;
    event after;
  };

  void retire(stream& s, buffer memory) {
    event after = executor_.make_event();
    executor_.record(s, after);
    retired_.push_back({std::move(memory), std::move(after)});
    collect();
  }
  /// Makes sure that a slot has memory.
  std::byte* use(std::uint32_t i) {
    if (i >= slots_.size()) slots_.resize(i + 1);
    if (slots_[i].size() == 0) slots_[i] = executor_.allocate(shape_.column_bytes() * columns_);
    return slots_[i].data();
  }
  void enqueue(stream& s, const copy_plan& plan, std::uint32_t old_columns);
  /// Retires the memory that the plan no longer needs.
  void let_go(stream& s, const copy_plan& plan);
  void copy(stream& s, const std::byte* from, std::size_t from_columns, std::size_t from_column,
            std::byte* to, std::size_t to_columns, std::size_t to_column, std::size_t count) {
    // The planes of all heads, layers and parts lie one after the other.
    executor_.copy(s, {.destination = to + to_column * shape_.head_bytes(),
                       .source = from + from_column * shape_.head_bytes(),
                       .row_bytes = count * shape_.head_bytes(),
                       .rows = 2 * shape_.layers * shape_.heads,
                       .destination_pitch = to_columns * shape_.head_bytes(),
                       .source_pitch = from_columns * shape_.head_bytes()});
  }

  Executor& executor_;
  kv_shape shape_;
  std::uint32_t columns_;
  std::vector<buffer> slots_;
  std::vector<buffer> old_;
  std::vector<storage_entry> packed_;
  std::vector<std::uint64_t> free_;
  std::vector<retiree> retired_;
  std::size_t stored_ = 0;
};

template <runtime::executor Executor>
std::uint64_t kv_memory<Executor>::allocate(std::uint32_t columns) {
  COHORT_ASSERT(columns >= 1);
  collect();
  if (free_.empty()) {
    packed_.emplace_back();
    free_.push_back(packed_.size() - 1);
  }
  const std::uint64_t storage = free_.back();
  packed_[storage].memory = executor_.allocate(shape_.column_bytes() * columns);
  packed_[storage].columns = columns;
  free_.pop_back();
  ++stored_;
  return storage;
}

template <runtime::executor Executor>
void kv_memory<Executor>::enqueue(stream& s, const copy_plan& plan, std::uint32_t old_columns) {
  for (const column_copy& c : plan.copies()) {
    switch (c.kind) {
      case copy_kind::enter:
        copy(s, packed(c.storage), packed_columns(c.storage), c.from_column, use(c.to_slot),
             columns_, c.to_column, c.count);
        break;
      case copy_kind::leave:
        copy(s, use(c.from_slot), columns_, c.from_column, packed(c.storage),
             packed_columns(c.storage), c.to_column, c.count);
        break;
      case copy_kind::shift: {
        std::byte* const to = use(c.to_slot);
        copy(s, use(c.from_slot), columns_, c.from_column, to, columns_, c.to_column, c.count);
        break;
      }
      case copy_kind::resize:
        // A plan that failed has left it without memory, and with nothing to keep.
        if (c.from_slot >= old_.size() || old_[c.from_slot].size() == 0) break;
        copy(s, old_[c.from_slot].data(), old_columns, c.from_column, use(c.to_slot), columns_,
             c.to_column, c.count);
        break;
    }
  }
}

template <runtime::executor Executor>
void kv_memory<Executor>::let_go(stream& s, const copy_plan& plan) {
  for (buffer& b : old_) {
    if (b.size() > 0) retire(s, std::move(b));
  }
  old_.clear();
  if (plan.rows() != 0) {
    for (std::size_t i = plan.rows(); i < slots_.size(); ++i) {
      if (slots_[i].size() > 0) retire(s, std::move(slots_[i]));
    }
    if (plan.rows() < slots_.size()) slots_.resize(plan.rows());
  }
}

}  // namespace cohort::kv
