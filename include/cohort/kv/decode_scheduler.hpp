// SPDX-License-Identifier: Apache-2.0
/// @file
/// The life of sequences around a decode batch: prefill, embedding, tokens, preemption, the end.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/budget.hpp>
#include <cohort/kv/decode_batch.hpp>
#include <cohort/kv/pick_policy.hpp>
#include <cohort/kv/prefill_groups.hpp>
#include <cohort/kv/waiting_list.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace cohort::kv {

/// Where a sequence is in its life.
enum class sequence_state : std::uint8_t {
  idle,        ///< Not submitted, or ended: it is the caller's.
  queued,      ///< Waits for prefill.
  prefilling,  ///< In a group that was handed out.
  prepared,    ///< Prefilled or preempted; waits for a slot.
  running,     ///< In the batch.
};

/// One generation. The caller fills the first part and keeps the object alive and unmoved until its
/// final event. Derive from it to carry the prompt, the text, the sampler. Thread safety: none.
struct sequence {
  request_id id{};
  std::uint32_t prompt = 1;   ///< Tokens; at least 1.
  std::uint32_t max_new = 1;  ///< Tokens to produce, that of prefill included; at least 1.
  std::uint8_t priority = 0;  ///< 0 is the most important.
  time_point deadline = never;

  /// Written by the scheduler; read-only for the caller.
  sequence_state state = sequence_state::idle;
  prepared who{};
  std::uint64_t number = 0;   ///< Position in the order of submission.
  std::uint32_t slot = 0;     ///< While running.
  std::uint32_t entered = 0;  ///< Iteration of its latest entry, modulo 2^32.
  bool cancel_requested = false;
  bool expired = false;
};

struct scheduler_options {
  batch_options batch{};            ///< Slots to begin with, and columns.
  std::uint32_t max_slots = 8;      ///< Most slots; at least batch.slots.
  std::uint32_t max_queued = 1024;  ///< Sequences that are neither ended nor running; at least 1.
  std::uint32_t max_prepared = 64;  ///< Prefill pauses while so many wait for a slot; at least 1.
  std::uint32_t max_positions = 1U << 20U;  ///< Of the model: prompt and output; at least 2.
  prefill_limits prefill{};
  budget_options budget{.high_bytes = std::numeric_limits<std::uint64_t>::max(),
                        .low_bytes = std::numeric_limits<std::uint64_t>::max(),
                        .bytes_per_column = 1};
};

/// Keeps a decode batch full. A value: a driver asks `next_prefill` whenever its prefill stream is
/// free, and at each iteration boundary calls `begin`, computes, and gives each live slot its
/// token. The two never wait for each other. Its sink carries out what it decides:
/// * `execute(const copy_plan&)`: the copies, in order, on the stream that decodes;
/// * `std::uint64_t allocate(sequence&, std::uint32_t columns)`: packed storage for a preempted
/// one;
/// * `release(std::uint64_t storage)`: not needed once the copies so far have run;
/// * `finish(sequence&, finish_reason)`: the final event, exactly one for each accepted sequence.
/// Sinks must not call back. A slot never stays empty while somebody admissible waits.
/// Complexity: O(slots + sequences that wait) an iteration. Allocates to grow. Thread safety: none.
template <pick_policy Pick = by_priority>
class decode_scheduler {
 public:
  /// @throws config_error If an option is outside its range.
  explicit decode_scheduler(const scheduler_options& o, Pick pick = {})
      : o_{o}, pick_{pick}, batch_{o.batch}, budget_{o.budget}, groups_{o.prefill} {
    expects(o.max_slots >= o.batch.slots, "decode_scheduler: max_slots must be at least slots");
    expects(o.budget.commit != kv_commit::ring || o.batch.layout == column_layout::ring,
            "decode_scheduler: commit ring needs layout ring");
    expects(o.max_queued >= 1, "decode_scheduler: max_queued must be at least 1");
    expects(o.max_prepared >= 1, "decode_scheduler: max_prepared must be at least 1");
    expects(o.max_positions >= 2, "decode_scheduler: max_positions must be at least 2");
    owners_.resize(o.max_slots);
    queued_.reserve(o.max_queued);
  }

  /// Accepts a sequence, or says why not; a refused one stays the caller's.
  std::optional<refusal> submit(sequence& s);
  /// The group to prefill next, or none: at most one group is out at a time. Valid until the next
  /// call. Each member must be answered by `on_prefilled` or `on_prefill_failed`.
  std::span<sequence* const> next_prefill();
  /// @param storage Its packed columns.  @param token The first one.  @param is_stop It ends there.
  template <class Sink>
  void on_prefilled(sequence& s, std::uint64_t storage, token_id token, bool is_stop, Sink& sink);
  template <class Sink>
  void on_prefill_failed(sequence& s, Sink& sink);

  /// At an iteration boundary: lets expired ones go, makes room, fills the slots, appends a column.
  /// @returns Whether there is an iteration to compute, over the live slots of `batch()`.
  template <class Sink>
  bool begin(time_point now, Sink& sink);
  /// The token of a live slot in the iteration begun; once for each.
  template <class Sink>
  void on_token(std::uint32_t slot, token_id token, bool is_stop, Sink& sink);

  /// Ends a sequence as soon as it may: at once, or when the iteration or prefill under way ends.
  /// No effect on an idle one. If it finishes in that iteration, it has finished.
  template <class Sink>
  void cancel(sequence& s, Sink& sink) {
    s.cancel_requested = true;
    end_if_possible(s, finish_reason::cancelled, sink);
  }
  /// Preempts a running sequence between two iterations, for a reason of the caller's.
  template <class Sink>
  void preempt(sequence& s, Sink& sink) {
    COHORT_ASSERT(s.state == sequence_state::running && outstanding_ == 0);
    evict(s, sink);
  }

  [[nodiscard]] const decode_batch& batch() const noexcept { return batch_; }
  [[nodiscard]] sequence& in_slot(std::uint32_t slot) const noexcept { return *owners_[slot]; }
  [[nodiscard]] std::size_t queued() const noexcept { return queued_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return prepared_.size(); }
  [[nodiscard]] bool empty() const noexcept {
    return queued_.empty() && out_ == 0 && prepared_.empty() && batch_.live() == 0;
  }
  /// Counts since the start.
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return inserts_; }
  [[nodiscard]] std::uint64_t preemptions() const noexcept { return preemptions_; }
  /// Slot-iterations empty while somebody admissible waited: always 0.
  [[nodiscard]] std::uint64_t starved() const noexcept { return starved_; }
  /// The most bytes held at one instant, as the budget counts them.
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return peak_bytes_; }

 private:
  [[nodiscard]] batch_shape shape() const noexcept {
    return {batch_.size(), batch_.length(), batch_.window().capacity()};
  }
  [[nodiscard]] bool outlives_position(const prepared& p) const noexcept {
    return p.length + 1 >= o_.max_positions;
  }
  template <class Sink>
  void execute(Sink& sink) {
    if (!plan_.empty()) sink.execute(std::as_const(plan_));
    plan_.clear();
  }
  template <class Sink>
  void resize(std::uint32_t rows, Sink& sink);
  template <class Sink>
  void evict(sequence& s, Sink& sink);
  template <class Sink>
  void shed(Sink& sink);
  template <class Sink>
  void fill(Sink& sink);
  template <class Sink>
  bool end_if_possible(sequence& s, finish_reason why, Sink& sink);
  template <class Sink>
  void finish(sequence& s, finish_reason why, Sink& sink) {
    s.state = sequence_state::idle;
    sink.finish(s, why);
  }
  void wait(sequence& s) {
    s.state = sequence_state::prepared;
    prepared_.push({.sequence = s.number,
                    .length = s.who.length,
                    .skipped = 0,
                    .priority = s.priority,
                    .was_running = s.who.was_running},
                   &s);
  }
  void note_peak(std::uint64_t span) {
    peak_bytes_ = std::max(peak_bytes_, budget_.peak_bytes(shape(), span));
  }

  scheduler_options o_;
  [[no_unique_address]] Pick pick_;
  decode_batch batch_;
  kv_budget budget_;
  prefill_groups groups_;
  copy_plan plan_;
  std::vector<sequence*> queued_;
  std::vector<sequence*> group_;
  std::vector<std::uint32_t> lengths_;
  std::vector<victim_view> victims_;
  std::vector<sequence*> scratch_;
  waiting_list<sequence*> prepared_;
  std::vector<sequence*> owners_;  // By slot.
  std::uint64_t numbers_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t inserts_ = 0;
  std::uint64_t preemptions_ = 0;
  std::uint64_t starved_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::size_t out_ = 0;            // Under prefill.
  std::uint32_t outstanding_ = 0;  // Slots that have not had their token in this iteration.
};

template <pick_policy Pick>
std::optional<refusal> decode_scheduler<Pick>::submit(sequence& s) {
  COHORT_ASSERT(s.state == sequence_state::idle);
  const std::uint64_t most =
      std::min<std::uint64_t>(std::uint64_t{s.prompt} + s.max_new, o_.max_positions);
  if (s.prompt == 0 || s.max_new == 0 || s.prompt >= o_.max_positions ||
      !budget_.can_run_alone(s.prompt, static_cast<std::uint32_t>(most - s.prompt),
                             o_.batch.columns)) {
    return refusal::too_big;
  }
  if (queued_.size() + out_ + prepared_.size() >= o_.max_queued) return refusal::queue_full;
  s.state = sequence_state::queued;
  s.number = ++numbers_;
  s.cancel_requested = false;
  s.expired = false;
  s.who = {.id = s.id, .storage = 0, .prompt = s.prompt, .priority = s.priority};
  queued_.push_back(&s);
  return std::nullopt;
}

template <pick_policy Pick>
std::span<sequence* const> decode_scheduler<Pick>::next_prefill() {
  group_.clear();
  if (out_ > 0 || queued_.empty() || prepared_.size() >= o_.max_prepared) return {};
  std::ranges::sort(queued_, [](const sequence* a, const sequence* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->number < b->number;
  });
  lengths_.clear();
  for (const sequence* s : queued_) lengths_.push_back(s->prompt);
  for (const std::uint32_t i : groups_.next(lengths_)) group_.push_back(queued_[i]);
  for (sequence* s : group_) s->state = sequence_state::prefilling;
  std::erase_if(queued_, [](const sequence* s) { return s->state != sequence_state::queued; });
  out_ = group_.size();
  return group_;
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::on_prefilled(sequence& s, std::uint64_t storage, token_id token,
                                          bool is_stop, Sink& sink) {
  COHORT_ASSERT(s.state == sequence_state::prefilling);
  --out_;
  s.who.storage = storage;
  s.who.length = s.prompt;
  s.who.produced = 1;
  s.who.pending = token;
  std::optional<finish_reason> why;
  if (is_stop) {
    why = finish_reason::stop;
  } else if (s.max_new == 1) {
    why = finish_reason::length;
  } else if (outlives_position(s.who)) {
    why = finish_reason::context_length;
  } else if (s.cancel_requested) {
    why = finish_reason::cancelled;
  } else if (s.expired) {
    why = finish_reason::deadline;
  }
  if (why) {
    sink.release(storage);
    finish(s, *why, sink);
  } else {
    wait(s);
  }
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::on_prefill_failed(sequence& s, Sink& sink) {
  COHORT_ASSERT(s.state == sequence_state::prefilling);
  --out_;
  finish(s, finish_reason::error, sink);
}

template <pick_policy Pick>
template <class Sink>
bool decode_scheduler<Pick>::end_if_possible(sequence& s, finish_reason why, Sink& sink) {
  switch (s.state) {
    case sequence_state::idle:
    case sequence_state::prefilling:  // Its storage is being written.
      return false;
    case sequence_state::queued:
      std::erase(queued_, &s);
      break;
    case sequence_state::prepared:
      for (std::size_t i = 0; i < prepared_.size(); ++i) {
        if (prepared_[i] != &s) continue;
        prepared_.erase(i);
        break;
      }
      sink.release(s.who.storage);
      break;
    case sequence_state::running:
      if (outstanding_ > 0) return false;
      batch_.remove(s.slot);
      break;
  }
  finish(s, why, sink);
  return true;
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::resize(std::uint32_t rows, Sink& sink) {
  batch_.resize(rows, plan_);
  for (const column_copy& c : plan_.copies()) {
    if (owners_[c.from_slot]->slot != c.from_slot) continue;  // A second run of the same slot.
    owners_[c.to_slot] = owners_[c.from_slot];
    owners_[c.to_slot]->slot = c.to_slot;
  }
  execute(sink);
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::evict(sequence& s, Sink& sink) {
  const std::uint64_t storage = sink.allocate(s, s.who.length);
  s.who = batch_.preempt(s.slot, storage, kv_place::host, plan_);
  execute(sink);
  ++preemptions_;
  wait(s);
}

/// Below the low mark, once above the high one: free rows first, then whom the budget names.
template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::shed(Sink& sink) {
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
    evict(*owners_[budget_.victim(victims_)], sink);
  }
  if (batch_.live() != 1 || !budget_.must_shed(shape())) return;
  // Alone, and the memory of earlier neighbours is too much for its growth: it starts over in less.
  evict(*owners_[0], sink);
  batch_.trim(plan_);
  execute(sink);
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::fill(Sink& sink) {
  if (batch_.live() == 0) {
    batch_.trim(plan_);
    execute(sink);
  }
  while (!prepared_.empty()) {
    std::uint32_t slot = batch_.free_slot();
    const bool is_full = slot == batch_.size();
    if (is_full && batch_.size() == o_.max_slots) return;
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
      // Too many rows for any of them: with fewer, one may fit.
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
template <class Sink>
bool decode_scheduler<Pick>::begin(time_point now, Sink& sink) {
  COHORT_ASSERT(outstanding_ == 0);
  scratch_.clear();
  for (sequence* s : queued_) scratch_.push_back(s);
  for (std::size_t i = 0; i < prepared_.size(); ++i) scratch_.push_back(prepared_[i]);
  for (std::uint32_t i = 0; i < batch_.size(); ++i) {
    if (batch_[i].live) scratch_.push_back(owners_[i]);
  }
  for (sequence* s : scratch_) {
    if (s->deadline > now) continue;
    s->expired = true;
    end_if_possible(*s, finish_reason::deadline, sink);
  }
  for (sequence* s : group_) {
    if (s->state == sequence_state::prefilling && s->deadline <= now) s->expired = true;
  }

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
  outstanding_ = batch_.live();
  for (std::uint32_t i = 0; i < batch_.size(); ++i) {
    if (batch_[i].live) owners_[i]->who = batch_[i].who;
  }
  return true;
}

template <pick_policy Pick>
template <class Sink>
void decode_scheduler<Pick>::on_token(std::uint32_t slot, token_id token, bool is_stop,
                                      Sink& sink) {
  COHORT_ASSERT(outstanding_ > 0 && batch_[slot].live);
  --outstanding_;
  batch_.produce(slot, token);
  sequence& s = *owners_[slot];
  s.who = batch_[slot].who;
  std::optional<finish_reason> why;
  if (is_stop) {
    why = finish_reason::stop;
  } else if (s.who.produced >= s.max_new) {
    why = finish_reason::length;
  } else if (outlives_position(s.who)) {
    why = finish_reason::context_length;
  } else if (s.cancel_requested) {
    why = finish_reason::cancelled;
  }
  if (!why) return;
  batch_.remove(slot);
  finish(s, *why, sink);
}

}  // namespace cohort::kv
