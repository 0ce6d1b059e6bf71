// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations that let requests join or leave a running batch, or divide it: `meta_ops`.
#pragma once

#include <cohort/batching/batch.hpp>
#include <cohort/batching/batch_table.hpp>
#include <cohort/batching/observer.hpp>
#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/time.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace cohort::batching {

/// When a row may still grow.
struct stretch_limits {
  /// A row of this age or older does not grow. At most 0: no row ever grows.
  duration longest_wait = unbounded;
  /// Last stage, from 0, that a growing row may have entered. `automatic` means the last but one.
  std::uint32_t last_stage = automatic;
  static constexpr std::uint32_t automatic = UINT32_MAX;
};

/// The result of an operation. `refusal` is `none` if it was done.
struct meta_result {
  batch_id batch = no_batch;  ///< The row it made or grew.
  meta_refusal refusal = meta_refusal::none;
  explicit operator bool() const noexcept { return refusal == meta_refusal::none; }
};

/// Where a row stands after an item of it has left a stage.
enum class progress : std::uint8_t {
  held,      ///< Stragglers are still behind: the finished part waits.
  whole,     ///< All of it stands at the boundary: it can be pushed on, split or stretched.
  followed,  ///< An earlier part has gone ahead: push the rest after it.
  ended,     ///< The last of it has left the last stage.
};

/// The batch table with the queues between stages, and the operations on both. Operations that do
/// not apply are refused with a reason and change nothing. An ended request remains as an unused
/// slot, so that counts never decrease; an item without live requests passes its stage without
/// being run (`is_dead`). Sans-I/O: gets the time from its caller, owns no thread. Cost: O(requests
/// touched). Allocates only while a queue grows to a length it never had. Thread safety: none.
/// @tparam Observer Sees operations and refusals: `batch_observer`.
/// Source: DVABatch, section 5; the rule with `issued` is derived in docs/batching/batch_table.md.
template <batch_observer Observer = null_batch_observer>
class meta_ops {
 public:
  /// @throws config_error If an option is outside its range.
  explicit meta_ops(const table_options& table, stretch_limits limits = {}, Observer o = {})
      : table_{table}, limits_{limits}, observer_{std::move(o)} {
    expects(limits.last_stage == stretch_limits::automatic || limits.last_stage < table.stages,
            "meta_ops: last_stage must be a stage");
    closed_from_ =
        limits.last_stage == stretch_limits::automatic ? table.stages - 1 : limits.last_stage + 1;
    queues_.assign(table.stages, item_queue{table.max_rows});
    parts_.reserve(table.batch_max);
  }

  [[nodiscard]] batch_table& table() noexcept { return table_; }
  [[nodiscard]] const batch_table& table() const noexcept { return table_; }
  [[nodiscard]] item_queue& queue(std::uint32_t stage) noexcept { return queues_[stage]; }
  [[nodiscard]] const item_queue& queue(std::uint32_t stage) const noexcept {
    return queues_[stage];
  }
  [[nodiscard]] Observer& observer() noexcept { return observer_; }
  [[nodiscard]] const stretch_limits& limits() const noexcept { return limits_; }

  /// Makes a row of the requests and queues it for the first stage.
  meta_result make(std::span<const staged_request> requests, time_point now,
                   bool no_stretch = false, std::uint32_t bucket = 0) {
    if (requests.empty()) return refuse(meta_op::make, meta_refusal::empty, now);
    if (requests.size() > table_.batch_max()) {
      return refuse(meta_op::make, meta_refusal::too_large, now);
    }
    if (table_.free_rows() == 0) return refuse(meta_op::make, meta_refusal::table_full, now);
    batch_row& r = table_.add();
    r.time = now;
    r.no_stretch = no_stretch;
    r.bucket = bucket;
    grow(r, requests);
    observer_.made(r, now);
    push(r, 0, {r.id, 0, r.size}, now);
    return {r.id};
  }

  /// Whether the latest row may grow by `n` requests at `now`; `none` if so. Pure.
  [[nodiscard]] meta_refusal can_stretch(std::uint32_t n, time_point now) const noexcept {
    const batch_row* r = table_.latest();
    return r == nullptr ? meta_refusal::not_latest : can_stretch(*r, n, now);
  }
  [[nodiscard]] meta_refusal can_stretch(const batch_row& r, std::uint32_t n,
                                         time_point now) const noexcept {
    if (n == 0) return meta_refusal::empty;
    if (table_.latest() != &r) return meta_refusal::not_latest;
    if (r.no_stretch || r.parent != no_batch) return meta_refusal::no_stretch;
    if (n > table_.batch_max() - r.size) return meta_refusal::too_large;
    if (now - r.time >= limits_.longest_wait) return meta_refusal::too_old;
    for (std::uint32_t s = closed_from_; s < table_.stages(); ++s) {
      if (r.issued[s] > 0) return meta_refusal::issued_too_far;
    }
    return meta_refusal::none;
  }

  /// Lets the requests join the latest row: they start at the first stage and catch up with it.
  meta_result stretch(std::span<const staged_request> requests, time_point now) {
    const auto n = static_cast<std::uint32_t>(requests.size());
    if (const meta_refusal why = can_stretch(n, now); why != meta_refusal::none) {
      return refuse(meta_op::stretch, why, now);
    }
    batch_row& r = *table_.latest();
    const std::uint32_t start = r.size;
    grow(r, requests);
    observer_.stretched(r, n, now);
    item_queue& first = queues_[0];
    for (std::size_t i = first.size(); i-- > 0;) {
      if (first[i].batch == r.id) {  // Not taken yet: one launch serves all waiting requests.
        first[i].count += n;
        r.issued[0] = r.size;
        return {r.id};
      }
    }
    push(r, 0, {r.id, start, n}, now);
    return {r.id};
  }

  /// The next item that a stage would take, at `position` in its queue.
  item take(std::uint32_t stage, std::size_t position = 0) noexcept {
    return queues_[stage].take(position);
  }

  /// An item has left a stage. At `ended` the row is still there; remove it by `remove`.
  progress finish(std::uint32_t stage, const item& i, time_point now) noexcept {
    batch_row& r = table_[i.batch];
    COHORT_ASSERT(i.start == r.completed[stage]);
    r.completed[stage] += i.count;
    COHORT_ASSERT(table_.is_sound(r));
    if (r.completed[stage] < r.size) {
      if (stage + 1 < table_.stages()) observer_.held(r, stage, now);
      return progress::held;
    }
    if (stage + 1 == table_.stages()) return progress::ended;
    return r.issued[stage + 1] == 0 ? progress::whole : progress::followed;
  }

  /// Queues for the next stage all requests that have left this one and are not queued there yet.
  void hand_over(std::uint32_t stage, batch_id id, time_point now) {
    batch_row& r = table_[id];
    COHORT_ASSERT(r.completed[stage] == r.size);
    const std::uint32_t start = r.issued[stage + 1];
    push(r, stage + 1, {id, start, r.size - start}, now);
  }

  /// `finish`, then `hand_over` unless held: the rule of the paper in one step.
  progress on_complete(std::uint32_t stage, const item& i, time_point now) {
    const progress p = finish(stage, i, now);
    if (p == progress::whole || p == progress::followed) hand_over(stage, i.batch, now);
    if (p == progress::ended) remove(i.batch);
    return p;
  }

  /// Replaces a row that stands whole after `stage` by children of the sizes, in order, and queues
  /// them one by one for the next stage. They keep buffers, slots and time, and never grow.
  /// @param serial Each child waits at every stage until its earlier siblings have ended.
  meta_result split(std::uint32_t stage, batch_id id, std::span<const std::uint32_t> sizes,
                    time_point now, bool serial = false) {
    batch_row* r = table_.find(id);
    if (const meta_refusal why = can_split(stage, r, sizes); why != meta_refusal::none) {
      return refuse(meta_op::split, why, now);
    }
    observer_.split(*r, static_cast<std::uint32_t>(sizes.size()), now);
    parts_.clear();
    std::uint32_t offset = 0;
    for (const std::uint32_t n : sizes) {
      batch_row& c = table_.add(r);
      adopt(*r, c, stage, offset, n);
      c.serial = serial || r->serial;
      parts_.push_back(c.id);
      offset += n;
    }
    table_.remove(*r);
    for (const batch_id c : parts_) {
      batch_row& row = table_[c];
      push(row, stage + 1, {c, 0, row.size}, now);
    }
    return {parts_.front()};
  }

  /// Closes the gaps left by ended requests in a row that stands whole after `stage`. The row is
  /// replaced by a smaller one without those slots, as in a split where the other child has left.
  /// Calls `moved(row, from, to)` for every slot that moves down, in increasing order; slots are
  /// counted from the start of the row's buffers. If no request is live the row is unchanged.
  /// @returns The row that stands there now, which is not queued yet.
  template <class Moved>
  batch_id compact(std::uint32_t stage, batch_id id, time_point now, Moved&& moved) {
    batch_row& r = table_[id];
    if (r.live == r.size || r.live == 0) return id;
    if (table_.free_rows() == 0) {
      refuse(meta_op::leave, meta_refusal::table_full, now);
      return id;
    }
    batch_row& c = table_.add(&r);
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < r.size; ++i) {
      if (!r.slots[i].live) continue;
      if (n != i) {
        std::swap(r.slots[n], r.slots[i]);
        moved(r, r.base + i, r.base + n);
      }
      ++n;
    }
    adopt(r, c, stage, 0, n);
    c.parent = r.parent;  // Not a child for `stretch`: it still is the whole of its row.
    c.no_stretch = r.no_stretch;
    c.serial = r.serial;
    const batch_id kept = c.id;
    table_.remove(r);
    return kept;
  }

  /// Moves requests that skip the next stage behind those that run it, so that the latter form one
  /// slice. The row must stand whole. Two rows are exchanged by way of the buffers' extra slot; see
  /// `compact`.
  template <class Moved>
  void put_skipping_last(batch_id id, Moved&& moved) {
    batch_row& r = table_[id];
    const std::uint32_t spare = table_.batch_max();
    for (std::uint32_t i = 0, end = r.size;; ++i) {
      while (i < end && !r.slots[i].skips) ++i;
      while (i < end && r.slots[end - 1].skips) --end;
      if (i >= end) return;
      --end;
      moved(r, r.base + i, spare);
      moved(r, r.base + end, r.base + i);
      moved(r, spare, r.base + end);
      std::swap(r.slots[i], r.slots[end]);
    }
  }

  /// Removes a request from its row: by `cancel`, by `fail`, or by `leave` if it exits early with
  /// its present result. Its slot stays unused.
  meta_refusal end(meta_op how, batch_id id, std::uint32_t place, time_point now) noexcept {
    batch_row* r = table_.find(id);
    if (r == nullptr || place >= r->size || !r->slots[place].live) {
      observer_.refused(how, meta_refusal::no_such_slot, now);
      return meta_refusal::no_such_slot;
    }
    r->slots[place].live = false;
    --r->live;
    observer_.ended(*r, place, how, now);
    return meta_refusal::none;
  }
  meta_refusal cancel(batch_id id, std::uint32_t place, time_point now) noexcept {
    return end(meta_op::cancel, id, place, now);
  }

  /// Whether no request of the item is live: it passes its stage without being run.
  [[nodiscard]] bool is_dead(const item& i) const noexcept { return live(i) == 0; }
  /// Live requests of an item.
  [[nodiscard]] std::uint32_t live(const item& i) const noexcept {
    const batch_row& r = table_[i.batch];
    if (r.live == r.size) return i.count;
    std::uint32_t n = 0;
    for (std::uint32_t k = i.start; k < i.start + i.count; ++k) n += r.slots[k].live ? 1U : 0U;
    return n;
  }
  /// The item without the unused slots at its ends. Not if it is dead.
  [[nodiscard]] item trimmed(item i) const noexcept {
    const batch_row& r = table_[i.batch];
    while (!r.slots[i.start].live) ++i.start, --i.count;
    while (!r.slots[i.start + i.count - 1].live) --i.count;
    return i;
  }

  void remove(batch_id id) noexcept { table_.remove(table_[id]); }

  /// Whether an earlier child of the same row, or of its parents, still exists.
  [[nodiscard]] bool has_earlier_sibling(batch_id id) noexcept {
    const batch_row& r = table_[id];
    const batch_row* older = table_.before(r);
    return older != nullptr && older->order == r.order;
  }

 private:
  meta_result refuse(meta_op what, meta_refusal why, time_point now) noexcept {
    observer_.refused(what, why, now);
    return {no_batch, why};
  }

  void grow(batch_row& r, std::span<const staged_request> requests) noexcept {
    for (const staged_request& q : requests) r.slots[r.size++] = {.request = q, .live = true};
    r.live += static_cast<std::uint32_t>(requests.size());
  }

  void push(batch_row& r, std::uint32_t stage, const item& i, time_point now) {
    r.issued[stage] = i.start + i.count;
    COHORT_ASSERT(table_.is_sound(r));
    queues_[stage].push(i);
    observer_.pushed(r, stage, i, now);
  }

  [[nodiscard]] meta_refusal can_split(std::uint32_t stage, const batch_row* r,
                                       std::span<const std::uint32_t> sizes) const noexcept {
    if (r == nullptr) return meta_refusal::no_such_batch;
    if (stage + 1 >= table_.stages() || r->completed[stage] != r->size ||
        r->issued[stage + 1] != 0) {
      return meta_refusal::not_at_boundary;
    }
    std::size_t sum = 0;
    for (const std::uint32_t n : sizes) {
      if (n == 0) return meta_refusal::bad_sizes;
      sum += n;
    }
    if (sizes.size() < 2 || sum != r->size) return meta_refusal::bad_sizes;
    if (table_.free_rows() < sizes.size()) return meta_refusal::table_full;
    return meta_refusal::none;
  }

  /// Makes `c` the part [offset, offset + n) of `r`, all of it past `stage`.
  void adopt(const batch_row& r, batch_row& c, std::uint32_t stage, std::uint32_t offset,
             std::uint32_t n) noexcept {
    c.size = n;
    c.time = r.time;
    c.no_stretch = true;
    c.base = r.base + offset;
    c.set = r.set;
    c.bucket = r.bucket;
    c.parent = r.id;
    c.order = r.order;
    for (std::uint32_t s = 0; s <= stage; ++s) c.completed[s] = c.issued[s] = n;
    for (std::uint32_t i = 0; i < n; ++i) {
      c.slots[i] = r.slots[offset + i];
      c.live += c.slots[i].live ? 1U : 0U;
    }
  }

  batch_table table_;
  std::vector<item_queue> queues_;
  std::vector<batch_id> parts_;
  stretch_limits limits_;
  std::uint32_t closed_from_ = 0;  // A row issued to this stage does not grow.
  [[no_unique_address]] Observer observer_;
};

}  // namespace cohort::batching
