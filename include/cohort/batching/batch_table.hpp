// SPDX-License-Identifier: Apache-2.0
/// @file
/// The batch table: the requests in each batch, and the progress of each batch.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::batching {

/// Sizes of a batch table, fixed when it is made.
struct table_options {
  std::uint32_t stages = 1;      ///< Stages of the model, 1 to 256.
  std::uint32_t batch_max = 64;  ///< Requests in a row, 1 to 65536.
  std::uint32_t max_rows = 256;  ///< Rows at one time, children of splits included, 1 to 65536.

  /// @throws config_error If a field is outside its range.
  constexpr void validate() const {
    expects(stages >= 1 && stages <= 256, "batch_table: stages must be in 1 to 256");
    expects(batch_max >= 1 && batch_max <= 65536, "batch_table: batch_max must be in 1 to 65536");
    expects(max_rows >= 1 && max_rows <= 65536, "batch_table: max_rows must be in 1 to 65536");
  }
};

/// A request's place in a row.
struct slot {
  staged_request request{};
  bool live = false;         ///< It has not ended. An ended request's slot stays, unused.
  bool leaving = false;      ///< Cancelled while in a stage: it ends when the stage is done.
  bool skips = false;        ///< It skips the stage that it is in or waits for.
  std::uint32_t judged = 0;  ///< Number of stages after which it was judged.
};

/// A batch. Stages are counted from 0. Invariants, for every stage s: completed[s] <= issued[s] <=
/// size <= batch_max, issued[s + 1] <= completed[s], issued[0] = size; neither ever decreases.
/// `completed` is the statusmap of the paper. `issued` is an addition: without it, requests in
/// flight at the next stage would be issued twice.
struct batch_row {
  batch_id id = no_batch;
  std::uint32_t size = 0;      ///< Slots in use, ended requests included.
  std::uint32_t live = 0;      ///< Requests that have not ended.
  time_point time{};           ///< Creation; a child has its parent's.
  bool no_stretch = false;     ///< May not grow: a split is foreseen, or it is a child.
  bool serial = false;         ///< May start a stage only after its earlier siblings have ended.
  std::uint32_t base = 0;      ///< First slot in its buffers; 0 unless a child.
  std::uint32_t set = no_set;  ///< Its buffer set, bound when stage 0 first takes it.
  std::uint32_t bucket = 0;    ///< Size class that its requests are padded to.
  batch_id parent = no_batch;  ///< The row it was split from.
  std::uint64_t order = 0;     ///< Age: lower is older; a child has its parent's.
  /// The stages before this one were launched together and the row is in them; 0 if not.
  std::uint32_t launched_to = 0;
  std::span<std::uint32_t> completed{};  ///< By stage: requests that have left it.
  std::span<std::uint32_t> issued{};     ///< By stage: requests that were queued for it.
  std::span<slot> slots{};               ///< batch_max of them; the first `size` are in use.

  /// The number of stages that the whole row has entered, minus one: its present stage, or the one
  /// that it waits for.
  [[nodiscard]] std::uint32_t entered() const noexcept {
    std::uint32_t s = 0;
    while (s + 1 < issued.size() && issued[s + 1] > 0) ++s;
    return s;
  }
};

/// Rows in order of creation, children in the place of their parent. A value: memory for all rows
/// is taken when it is made, and nothing allocates after. Thread safety: none. Source: DVABatch,
/// section 5.
class batch_table {
 public:
  /// @throws config_error If an option is outside its range.
  explicit batch_table(const table_options& o) : options_{o} {
    o.validate();
    rows_.resize(o.max_rows);
    counts_.resize(std::size_t{2} * o.stages * o.max_rows);
    slots_.resize(std::size_t{o.batch_max} * o.max_rows);
    free_.reserve(o.max_rows);
    for (std::uint32_t i = o.max_rows; i-- > 0;) free_.push_back(i);
    bind();
  }
  batch_table(const batch_table& other)
      : options_{other.options_},
        rows_{other.rows_},
        counts_{other.counts_},
        slots_{other.slots_},
        free_{other.free_},
        first_{other.first_},
        last_{other.last_},
        next_sequence_{other.next_sequence_},
        size_{other.size_} {
    free_.reserve(options_.max_rows);
    bind();
  }
  batch_table& operator=(const batch_table& other) {
    *this = batch_table{other};
    return *this;
  }
  batch_table(batch_table&&) noexcept = default;
  batch_table& operator=(batch_table&&) noexcept = default;
  ~batch_table() = default;

  [[nodiscard]] const table_options& options() const noexcept { return options_; }
  [[nodiscard]] std::uint32_t stages() const noexcept { return options_.stages; }
  [[nodiscard]] std::uint32_t batch_max() const noexcept { return options_.batch_max; }
  [[nodiscard]] std::uint32_t rows() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t free_rows() const noexcept {
    return static_cast<std::uint32_t>(free_.size());
  }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// The row, or null if it has ended. O(1).
  [[nodiscard]] batch_row* find(batch_id id) noexcept {
    node* n = node_of(id);
    return n == nullptr ? nullptr : &n->row;
  }
  [[nodiscard]] const batch_row* find(batch_id id) const noexcept {
    return const_cast<batch_table*>(this)->find(id);
  }
  /// The row, which must exist.
  [[nodiscard]] batch_row& operator[](batch_id id) noexcept {
    batch_row* r = find(id);
    COHORT_ASSERT(r != nullptr);
    return *r;
  }
  [[nodiscard]] const batch_row& operator[](batch_id id) const noexcept {
    return (*const_cast<batch_table*>(this))[id];
  }

  /// The oldest and the latest row, or null if there is none.
  [[nodiscard]] batch_row* oldest() noexcept { return row_at(first_); }
  [[nodiscard]] batch_row* latest() noexcept { return row_at(last_); }
  [[nodiscard]] const batch_row* latest() const noexcept {
    return const_cast<batch_table*>(this)->latest();
  }
  /// The next younger row, or null.
  [[nodiscard]] batch_row* after(const batch_row& r) noexcept {
    return row_at(rows_[index_of(r.id)].next);
  }
  [[nodiscard]] batch_row* before(const batch_row& r) noexcept {
    return row_at(rows_[index_of(r.id)].previous);
  }

  /// Adds a row, all its counts zero, as the latest; or before `place`, if given. A row must be
  /// free.
  batch_row& add(const batch_row* place = nullptr) noexcept {
    COHORT_ASSERT(!free_.empty());
    const std::uint32_t i = free_.back();
    free_.pop_back();
    node& n = rows_[i];
    const auto completed = n.row.completed;
    const auto issued = n.row.issued;
    const auto slots = n.row.slots;
    n.row = batch_row{};
    n.row.completed = completed;
    n.row.issued = issued;
    n.row.slots = slots;
    for (std::uint32_t& c : completed) c = 0;
    for (std::uint32_t& c : issued) c = 0;
    n.row.order = next_sequence_;
    n.row.id = batch_id{next_sequence_++ << 16U | i};
    n.used = true;
    n.next = place == nullptr ? none : index_of(place->id);
    n.previous = place == nullptr ? last_ : rows_[n.next].previous;
    (n.previous == none ? first_ : rows_[n.previous].next) = i;
    (n.next == none ? last_ : rows_[n.next].previous) = i;
    ++size_;
    return n.row;
  }

  void remove(batch_row& r) noexcept {
    const std::uint32_t i = index_of(r.id);
    node& n = rows_[i];
    (n.previous == none ? first_ : rows_[n.previous].next) = n.next;
    (n.next == none ? last_ : rows_[n.next].previous) = n.previous;
    n.used = false;
    free_.push_back(i);
    --size_;
  }

  /// Whether the invariants of a row hold.
  [[nodiscard]] bool is_sound(const batch_row& r) const noexcept {
    if (r.size == 0 || r.base + r.size > options_.batch_max || r.issued[0] != r.size) return false;
    for (std::uint32_t s = 0; s < options_.stages; ++s) {
      if (r.completed[s] > r.issued[s] || r.issued[s] > r.size) return false;
      if (s + 1 < options_.stages && r.issued[s + 1] > r.completed[s]) return false;
    }
    std::uint32_t live = 0;
    for (std::uint32_t i = 0; i < r.size; ++i) live += r.slots[i].live ? 1U : 0U;
    return live == r.live;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct node {
    batch_row row;
    bool used = false;
    std::uint32_t previous = none;
    std::uint32_t next = none;
  };

  static std::uint32_t index_of(batch_id id) noexcept {
    return static_cast<std::uint32_t>(id.value() & 0xFFFFU);
  }
  node* node_of(batch_id id) noexcept {
    const std::uint32_t i = index_of(id);
    if (id == no_batch || i >= rows_.size() || !rows_[i].used || rows_[i].row.id != id) {
      return nullptr;
    }
    return &rows_[i];
  }
  batch_row* row_at(std::uint32_t i) noexcept { return i == none ? nullptr : &rows_[i].row; }
  /// Points every row at its part of the memory.
  void bind() noexcept {
    const std::size_t s = options_.stages;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].row.completed = std::span{counts_}.subspan(2 * s * i, s);
      rows_[i].row.issued = std::span{counts_}.subspan(2 * s * i + s, s);
      rows_[i].row.slots = std::span{slots_}.subspan(options_.batch_max * i, options_.batch_max);
    }
  }

  table_options options_;
  std::vector<node> rows_;
  std::vector<std::uint32_t> counts_;
  std::vector<slot> slots_;
  std::vector<std::uint32_t> free_;
  std::uint32_t first_ = none;
  std::uint32_t last_ = none;
  std::uint64_t next_sequence_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace cohort::batching
