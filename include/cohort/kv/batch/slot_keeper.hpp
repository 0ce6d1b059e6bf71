// SPDX-License-Identifier: Apache-2.0
/// @file
/// Keeps the slots of a decode batch within a budget of bytes: embedding, preemption, rows.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/kv/batch/budget.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/decode_sink.hpp>
#include <cohort/kv/batch/pick_policy.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/batch/waiting_list.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cohort::kv {

/// The slots of a decode batch and the sequences that wait for one. It talks to a `decode_sink`.
/// O(slots + waiting) an operation; allocates to grow. Thread safety: none.
template <pick_policy Pick>
class slot_keeper {
 public:
  /// @throws config_error If an option is outside its range.
  slot_keeper(const batch_options& batch, const budget_options& budget, std::uint32_t max_slots,
              Pick pick)
      : pick_{pick}, batch_{batch}, budget_{budget}, max_slots_{max_slots} {
    expects(max_slots >= batch.slots, "decode_scheduler: max_slots must be at least slots");
    expects(budget.commit != kv_commit::ring || batch.layout == column_layout::ring,
            "decode_scheduler: commit ring needs layout ring");
    owners_.resize(max_slots);
  }

  [[nodiscard]] const decode_batch& batch() const noexcept { return batch_; }
  [[nodiscard]] const kv_budget& budget() const noexcept { return budget_; }
  [[nodiscard]] const waiting_list<sequence*>& waiting() const noexcept { return prepared_; }
  [[nodiscard]] sequence& in_slot(std::uint32_t slot) const noexcept { return *owners_[slot]; }
  [[nodiscard]] std::uint32_t max_slots() const noexcept { return max_slots_; }
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return inserts_; }
  [[nodiscard]] std::uint64_t preemptions() const noexcept { return preemptions_; }
  [[nodiscard]] std::uint64_t starved() const noexcept { return starved_; }
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }

  /// Adds a prefilled sequence to those that wait for a slot.
  void wait(sequence& s) {
    s.state = sequence_state::prepared;
    prepared_.push({.sequence = s.number,
                    .length = s.who.length,
                    .skipped = 0,
                    .priority = s.priority,
                    .was_running = s.who.was_running},
                   &s);
  }
  /// Removes a waiting sequence. Its storage is the caller's to release.
  void withdraw(const sequence& s) {
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      if (prepared_[i] != &s) continue;
      prepared_.erase(i);
      return;
    }
  }
  /// Records the token of a live slot.
  void produce(std::uint32_t slot, token_id token) noexcept {
    batch_.produce(slot, token);
    owners_[slot]->who = batch_[slot].who;
  }
  /// Empties a live slot after its sequence finished or was cancelled.
  void remove(std::uint32_t slot) noexcept {
    constexpr double kept = 31.0 / 32;  // About the latest 32 that left count.
    occupied_ *= kept;
    left_ = (left_ + 1) * kept;
    batch_.remove(slot);
  }
  /// Mean number of iterations from entering to leaving, recently; 0: none has left yet. The
  /// iterations of sequences that still run count, too: of those that came together, the first to
  /// leave say only how long short ones stay.
  [[nodiscard]] double mean_stay() const noexcept { return left_ > 0 ? occupied_ / left_ : 0; }
  /// The same plus two standard errors: the fewer sequences have left, the longer.
  [[nodiscard]] double cautious_stay() const noexcept {
    return left_ > 0 ? mean_stay() * (1 + 2 / std::sqrt(left_)) : 0;
  }
  /// Packs a running sequence, which waits from then on.
  /// @throws resource_error If there is no storage for it; the sequence then keeps running.
  template <storage_sink Sink>
  void evict(sequence& s, Sink& sink);

  /// Makes room, fills the slots and appends a column. A sequence that must be packed but finds no
  /// storage ends with `error`. @returns Whether a slot is live.
  template <decode_sink Sink>
  bool begin(Sink& sink);
  /// The iteration that was begun has run, so the sequences packed before it can be trusted.
  void note_iteration() noexcept { ++answered_; }
  /// Whether a waiting sequence was packed and no iteration has run since: its copies were enqueued
  /// after the last iteration that has run.
  [[nodiscard]] bool is_unproven(const sequence& s) const noexcept {
    return s.who.was_running && s.packed == answered_;
  }

 private:
  [[nodiscard]] batch_shape shape() const noexcept {
    return {batch_.size(), batch_.length(), batch_.window().capacity()};
  }
  template <storage_sink Sink>
  void execute(Sink& sink) {
    if (!plan_.empty()) sink.execute(std::as_const(plan_));
    plan_.clear();
  }
  template <storage_sink Sink>
  void resize(std::uint32_t rows, Sink& sink);
  template <decode_sink Sink>
  void shed(Sink& sink);
  template <decode_sink Sink>
  void evict_or_end(sequence& s, Sink& sink) {
    try {
      evict(s, sink);
    } catch (const resource_error&) {
      remove(s.slot);
      s.state = sequence_state::idle;
      sink.finish(s, finish_reason::error);
    }
  }
  template <storage_sink Sink>
  void fill(Sink& sink);
  void note_peak(std::uint64_t span) {
    peak_bytes_ = std::max(peak_bytes_, budget_.peak_bytes(shape(), span));
  }

  [[no_unique_address]] Pick pick_;
  decode_batch batch_;
  kv_budget budget_;
  std::uint32_t max_slots_;
  copy_plan plan_;
  std::vector<victim_view> victims_;
  waiting_list<sequence*> prepared_;
  std::vector<sequence*> owners_;  // By slot.
  double occupied_ = 0;            // Slot-iterations.
  double left_ = 0;                // Sequences that left in them.
  std::uint64_t iterations_ = 0;
  std::uint64_t answered_ = 0;  // The iterations among these that have run.
  std::uint64_t inserts_ = 0;
  std::uint64_t preemptions_ = 0;
  std::uint64_t starved_ = 0;
  std::uint64_t peak_bytes_ = 0;
};

template <pick_policy Pick>
template <storage_sink Sink>
void slot_keeper<Pick>::resize(std::uint32_t rows, Sink& sink) {
  batch_.resize(rows, plan_);
  for (const column_copy& c : plan_.copies()) {
    if (owners_[c.from_slot]->slot != c.from_slot) continue;  // A second run of the same slot.
    owners_[c.to_slot] = owners_[c.from_slot];
    owners_[c.to_slot]->slot = c.to_slot;
  }
  execute(sink);
}

template <pick_policy Pick>
template <storage_sink Sink>
void slot_keeper<Pick>::evict(sequence& s, Sink& sink) {
  const std::uint64_t storage = sink.allocate(s, s.who.length);
  s.who = batch_.preempt(s.slot, storage, kv_place::host, plan_);
  s.packed = answered_;
  execute(sink);
  ++preemptions_;
  wait(s);
}

/// Once above the high mark, sheds until below the low mark: free rows first, then the budget's
/// victims.
template <pick_policy Pick>
template <decode_sink Sink>
void slot_keeper<Pick>::shed(Sink& sink) {
  if (!budget_.must_shed(shape())) return;
  while (!budget_.is_relieved(shape())) {
    const std::uint32_t live = batch_.live();
    if (batch_.size() > std::max(1U, live)) {
      resize(std::max(1U, live), sink);
      continue;
    }
    if (live <= 1) break;
    victims_.clear();
    for (std::uint32_t i = 0; i < batch_.size(); ++i) {
      const sequence& s = *owners_[i];
      victims_.push_back({.span = batch_.span(i),
                          .length = s.who.length,
                          .stayed = static_cast<std::uint32_t>(iterations_) - s.entered,
                          .priority = s.priority,
                          .was_running = s.who.was_running});
    }
    evict_or_end(*owners_[budget_.victim(victims_)], sink);
  }
  if (batch_.live() != 1 || !budget_.must_shed(shape())) return;
  // It is alone, and the memory of earlier neighbours leaves no room for its growth: it starts over
  // in less.
  evict_or_end(*owners_[0], sink);
  batch_.trim(plan_);
  execute(sink);
}

template <pick_policy Pick>
template <storage_sink Sink>
void slot_keeper<Pick>::fill(Sink& sink) {
  if (batch_.live() == 0) {
    batch_.trim(plan_);
    execute(sink);
  }
  while (!prepared_.empty()) {
    std::uint32_t slot = batch_.free_slot();
    const bool is_full = slot == batch_.size();
    if (is_full && batch_.size() == max_slots_) return;
    pick_view view{.length = batch_.length()};
    batch_shape shape = this->shape();
    if (is_full) {
      ++shape.rows;
      const std::size_t next = pick_.pick(prepared_.views(), view);
      if (!budget_.can_add_row(this->shape(), prepared_.views()[next].length)) return;
    }
    view.max_length = budget_.max_length(shape);
    const std::size_t chosen = pick_.pick(prepared_.views(), view);
    if (chosen == no_pick) {
      // Too many rows for any waiting sequence: with fewer rows, one may fit.
      if (is_full || batch_.size() <= batch_.live() + 1) return;
      resize(batch_.size() - 1, sink);
      continue;
    }
    if (is_full) {
      slot = batch_.size();
      resize(slot + 1, sink);
    }
    note_peak(std::max<std::uint64_t>(batch_.length(), prepared_.views()[chosen].length));
    sequence& s = *prepared_.take(chosen);
    batch_.insert(slot, s.who, plan_);
    execute(sink);
    sink.release(s.who.storage);
    s.state = sequence_state::running;
    s.slot = slot;
    s.entered = static_cast<std::uint32_t>(iterations_);
    owners_[slot] = &s;
    ++inserts_;
  }
}

template <pick_policy Pick>
template <decode_sink Sink>
bool slot_keeper<Pick>::begin(Sink& sink) {
  shed(sink);
  fill(sink);
  if (batch_.live() == 0) return false;
  if (const std::uint32_t idle = batch_.size() - batch_.live(); idle > 0 && !prepared_.empty()) {
    const pick_view view{.length = batch_.length(), .max_length = budget_.max_length(shape())};
    if (pick_.pick(prepared_.views(), view) != no_pick) starved_ += idle;
  }
  note_peak(batch_.length() + 1);
  batch_.step(plan_);
  execute(sink);
  ++iterations_;
  occupied_ += batch_.live();
  for (std::uint32_t i = 0; i < batch_.size(); ++i) {
    if (batch_[i].live) owners_[i]->who = batch_[i].who;
  }
  return true;
}

}  // namespace cohort::kv
