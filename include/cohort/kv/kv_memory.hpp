// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keys and values in an executor's buffers, and copy plans carried out on its streams.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/copy_plan.hpp>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::kv {

/// What one column holds.
struct kv_shape {
  std::size_t layers = 1;         ///< At least 1.
  std::size_t heads = 1;          ///< Of keys and values; at least 1.
  std::size_t head_size = 1;      ///< Values of a head; at least 1.
  std::size_t element_bytes = 4;  ///< At least 1.

  [[nodiscard]] std::size_t head_bytes() const noexcept { return head_size * element_bytes; }
  [[nodiscard]] std::size_t column_bytes() const noexcept {
    return layers * 2 * heads * head_bytes();
  }
};

/// The batch's memory, [layer][2][slot][head][column][head_size], and packed columns,
/// [layer][2][head] [column][head_size]. Copies are enqueued on a stream and never waited for;
/// memory that they still read is freed once they have run, when `collect` or an allocation finds
/// it so. Allocates a buffer for each growth and each packed sequence, from the executor's pool.
/// Thread safety: none.
template <runtime::executor Executor>
class kv_memory {
 public:
  using stream = typename Executor::stream;
  using buffer = typename Executor::buffer;
  using event = typename Executor::event;

  /// @param slots Most rows the batch will have.  @param columns Its first capacity.
  /// @throws config_error If a dimension is 0 or the executor has no room.
  kv_memory(Executor& executor, const kv_shape& shape, std::uint32_t slots, std::uint32_t columns)
      : executor_{executor}, shape_{shape}, slots_{slots}, columns_{columns} {
    expects(shape.column_bytes() > 0, "kv_memory: the shape's dimensions must be at least 1");
    expects(slots >= 1 && columns >= 1, "kv_memory: slots and columns must be at least 1");
    batch_ = executor_.allocate(batch_bytes(columns));
  }

  [[nodiscard]] const kv_shape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::uint32_t columns() const noexcept { return columns_; }
  [[nodiscard]] std::byte* batch() const noexcept { return batch_.data(); }

  /// Packed storage of `columns` columns. @throws config_error If the executor has no room.
  std::uint64_t allocate(std::uint32_t columns);
  [[nodiscard]] std::byte* packed(std::uint64_t storage) const noexcept {
    return packed_[storage].memory.data();
  }
  [[nodiscard]] std::uint32_t packed_columns(std::uint64_t storage) const noexcept {
    return packed_[storage].columns;
  }
  /// Frees packed storage when the work so far on `s` has run.
  void release(stream& s, std::uint64_t storage) {
    retire(s, std::exchange(packed_[storage].memory, buffer{}));
    packed_[storage].columns = 0;
    free_.push_back(storage);
    --stored_;
  }
  /// Packed storages in use.
  [[nodiscard]] std::size_t stored() const noexcept { return stored_; }

  /// Enqueues the copies of a plan. @throws config_error If the executor has no room to grow.
  void execute(stream& s, const copy_plan& plan);

  /// Gives back memory whose copies have run.
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

  [[nodiscard]] std::size_t batch_bytes(std::size_t columns) const noexcept {
    return shape_.column_bytes() * slots_ * columns;
  }
  void retire(stream& s, buffer memory) {
    event after = executor_.make_event();
    executor_.record(s, after);
    retired_.push_back({std::move(memory), std::move(after)});
    collect();
  }
  /// A place in memory: head 0 of layer 0's keys at a column.
  struct place {
    std::byte* at;
    std::size_t part;  ///< Between keys and values, and between these and the next layer's keys.
    std::size_t head;
  };
  [[nodiscard]] place in_batch(std::byte* base, std::size_t columns, std::size_t slot,
                               std::size_t column) const noexcept {
    const std::size_t head = columns * shape_.head_bytes();
    const std::size_t row = shape_.heads * head;
    return {base + slot * row + column * shape_.head_bytes(), slots_ * row, head};
  }
  [[nodiscard]] place in_packed(std::uint64_t storage, std::size_t column) const noexcept {
    const std::size_t head = packed_[storage].columns * shape_.head_bytes();
    return {packed_[storage].memory.data() + column * shape_.head_bytes(), shape_.heads * head,
            head};
  }
  void copy(stream& s, place from, place to, std::size_t columns) {
    for (std::size_t i = 0; i < 2 * shape_.layers; ++i) {
      executor_.copy(s, {.destination = to.at + i * to.part,
                         .source = from.at + i * from.part,
                         .row_bytes = columns * shape_.head_bytes(),
                         .rows = shape_.heads,
                         .destination_pitch = to.head,
                         .source_pitch = from.head});
    }
  }

  Executor& executor_;
  kv_shape shape_;
  std::uint32_t slots_;
  std::uint32_t columns_;
  buffer batch_;
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
void kv_memory<Executor>::execute(stream& s, const copy_plan& plan) {
  buffer old;
  std::byte* const old_base = batch_.data();
  const std::uint32_t old_columns = columns_;
  if (plan.capacity() != 0) {
    collect();
    buffer grown = executor_.allocate(batch_bytes(plan.capacity()));
    old = std::exchange(batch_, std::move(grown));
    columns_ = plan.capacity();
  }
  for (const column_copy& c : plan.copies()) {
    switch (c.kind) {
      case copy_kind::enter:
        copy(s, in_packed(c.storage, c.from_column),
             in_batch(batch_.data(), columns_, c.to_slot, c.to_column), c.count);
        break;
      case copy_kind::leave:
        copy(s, in_batch(batch_.data(), columns_, c.from_slot, c.from_column),
             in_packed(c.storage, c.to_column), c.count);
        break;
      case copy_kind::shift:
        copy(s, in_batch(batch_.data(), columns_, c.from_slot, c.from_column),
             in_batch(batch_.data(), columns_, c.to_slot, c.to_column), c.count);
        break;
      case copy_kind::resize:
        copy(s, in_batch(old_base, old_columns, c.from_slot, c.from_column),
             in_batch(batch_.data(), columns_, c.to_slot, c.to_column), c.count);
        break;
    }
  }
  if (plan.capacity() != 0) retire(s, std::move(old));
}

}  // namespace cohort::kv
