// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs sequences through a decode batch: prefill, embedding, tokens, preemption and the final
/// event.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/request.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/decode_batch.hpp>
#include <cohort/kv/batch/decode_sink.hpp>
#include <cohort/kv/batch/pick_policy.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/batch/slot_keeper.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>
#include <cohort/kv/prompt/prefill_groups.hpp>
#include <cohort/kv/prompt/prefill_queue.hpp>
#include <cohort/kv/scheduler_options.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace cohort::kv {

/// Keeps a decode batch full. It is a value without threads: a driver calls `next_prefill` whenever
/// its prefill stream is free, and at each iteration boundary calls `begin`, computes, and gives
/// each live slot its token. Prefill and decoding never wait for each other. A `decode_sink`
/// carries out the decisions. A slot never stays empty while an admissible sequence waits.
/// Complexity: O(slots + sequences that wait) an iteration. Allocates to grow. Thread safety: none.
/// @tparam Pick Chooses the sequence that enters a free slot next.
/// @tparam Admission Decides when prompts start: at once, or by the SLOs of first tokens.
template <pick_policy Pick = by_priority, admission_policy Admission = start_at_once>
class decode_scheduler {
 public:
  /// @throws config_error If an option is outside its range.
  explicit decode_scheduler(const scheduler_options& o, Pick pick = {}, Admission admission = {})
      : o_{o},
        slots_{o.batch, o.budget, o.max_slots, pick},
        prompts_{o.prefill, std::move(admission)} {
    o.validate();
    prompts_.reserve(o.max_queued);
  }

  /// Accepts a sequence or returns the reason for refusing it; a refused one stays the caller's.
  std::optional<refusal> submit(sequence& s);
  /// Like the above, but checks deadlines, too. A policy that promises refuses a sequence that it
  /// could not promise. A policy that gives up late prompts refuses one that would be late even if
  /// it were prefilled alone and at once.
  /// @param pace Its durations, stretch, and whether prefill is coupled.
  std::optional<refusal> submit(sequence& s, const decode_load& pace, time_point now) {
    if (!prompts_.can_take(s, load(pace), now)) return refusal::deadline_infeasible;
    return submit(s);
  }
  /// When a sequence like this one, refused now, could be promised; see
  /// `prefill_queue`.
  [[nodiscard]] time_point takes_from(const sequence& s, const decode_load& pace,
                                      time_point now) const noexcept {
    return prompts_.takes_from(s, pace, now);
  }

  /// The group to prefill next, or none: `max_prefilling` limits how many prompts are out. Valid
  /// until the next call. Answer each member by `on_prefilled`, `on_prefill_failed` or
  /// `on_prefill_dropped`. For policies that start at once.
  std::span<sequence* const> next_prefill()
    requires std::same_as<Admission, start_at_once>
  {
    struct {
      void finish(sequence&, finish_reason) const noexcept {}
    } nobody;
    return next_prefill({}, {}, nobody);
  }
  /// The same for any policy; late prompts get their final event, `deadline`.
  /// @param pace Its durations and whether prefill is coupled. The scheduler fills in the counts.
  /// It also estimates `departure_gap` where that is 0, cautiously, from how many iterations others
  /// stayed.
  template <finish_sink Sink>
  std::span<sequence* const> next_prefill(const decode_load& pace, time_point now, Sink& sink);
  /// The same for prompts of up to `longest` tokens only, with a limit of its own
  /// (`max_overtaking`), so that they need not wait behind many long ones. Long prompts starve only
  /// if the driver computes none of them.
  template <finish_sink Sink>
  std::span<sequence* const> next_short_prefill(std::uint32_t longest, const decode_load& pace,
                                                time_point now, Sink& sink);
  /// When to ask again if a group waits for others to join. Ask in any case when a sequence comes
  /// or leaves.
  [[nodiscard]] time_point prefill_wake() const noexcept { return wake_; }
  /// Prompt tokens that the next iteration may carry, if prefill is coupled.
  [[nodiscard]] std::uint32_t prefill_chunk(const decode_load& pace) const noexcept {
    return prompts_.admission().chunk(load(pace));
  }

  /// @param storage Its packed columns.  @param token Its first token.  @param is_stop That token
  /// ends it.
  template <decode_sink Sink>
  void on_prefilled(sequence& s, std::uint64_t storage, token_id token, bool is_stop, Sink& sink);
  /// Updates the work left of a prompt under prefill, for policies that promise.
  void on_prefill_progress(sequence& s, duration work) noexcept { prompts_.note_work(s, work); }
  template <finish_sink Sink>
  void on_prefill_failed(sequence& s, Sink& sink);
  /// Ends a sequence that was cancelled or has expired under prefill: nothing writes for it any
  /// more, and the rest of its prompt is not computed.
  template <finish_sink Sink>
  void on_prefill_dropped(sequence& s, Sink& sink);

  /// At an iteration boundary: ends expired sequences, makes room, fills the slots and appends a
  /// column. @returns Whether there is an iteration to compute, over the live slots of `batch()`.
  template <decode_sink Sink>
  bool begin(time_point now, Sink& sink);
  /// Gives the token of a live slot in the iteration begun; call it once for each.
  template <finish_sink Sink>
  void on_token(std::uint32_t slot, token_id token, bool is_stop, Sink& sink);
  /// Call it instead of `on_token` if there is no token: the sequence ends with `error`.
  template <finish_sink Sink>
  void on_token_failed(std::uint32_t slot, Sink& sink);
  /// Call it instead of all tokens of the iteration begun, if the iteration failed or copies have
  /// failed since the last good one. Live sequences, and those packed since, end with `error`,
  /// because their keys and values cannot be trusted. All others go on. Also call it if `begin`
  /// found no live slot.
  template <decode_sink Sink>
  void on_iteration_failed(Sink& sink);

  /// Ends a sequence as soon as it may: at once, when the iteration under way ends, or when its
  /// prefill is answered, which the driver may then cut short. No effect on an idle sequence. If
  /// the sequence finishes in that iteration, it counts as finished.
  template <decode_sink Sink>
  void cancel(sequence& s, Sink& sink) {
    s.cancel_requested = true;
    end_if_possible(s, finish_reason::cancelled, sink);
  }
  /// Preempts a running sequence between two iterations, at the caller's wish.
  template <decode_sink Sink>
  void preempt(sequence& s, Sink& sink) {
    COHORT_ASSERT(s.state == sequence_state::running && outstanding_ == 0);
    slots_.evict(s, sink);
  }

  [[nodiscard]] const decode_batch& batch() const noexcept { return slots_.batch(); }
  [[nodiscard]] sequence& in_slot(std::uint32_t slot) const noexcept {
    return slots_.in_slot(slot);
  }
  [[nodiscard]] std::size_t queued() const noexcept { return prompts_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return slots_.waiting().size(); }
  [[nodiscard]] bool empty() const noexcept {
    return prompts_.empty() && out_.empty() && slots_.waiting().empty() && batch().live() == 0;
  }
  /// Counts since the start.
  [[nodiscard]] std::uint64_t iterations() const noexcept { return slots_.iterations(); }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return slots_.inserts(); }
  [[nodiscard]] std::uint64_t preemptions() const noexcept { return slots_.preemptions(); }
  /// Slot-iterations that were empty while an admissible sequence waited: always 0.
  [[nodiscard]] std::uint64_t starved() const noexcept { return slots_.starved(); }
  /// The most bytes held at one instant, as the budget counts them.
  [[nodiscard]] std::uint64_t peak_bytes() const noexcept { return slots_.peak_bytes(); }

 private:
  [[nodiscard]] bool outlives_position(const prepared& p) const noexcept {
    return p.length + 1 >= o_.max_positions;
  }
  [[nodiscard]] decode_load load(decode_load pace) const noexcept {
    const std::uint32_t free = slots_.max_slots() - batch().live();
    // Those under prefill will want a slot, too, before any that starts now.
    const auto waiting = static_cast<std::uint32_t>(slots_.waiting().size() + out_.size());
    pace.live = batch().live();
    pace.room = free > waiting ? free - waiting : 0;
    pace.behind = waiting > free ? waiting - free : 0;
    if (pace.mean_iteration == duration{0}) pace.mean_iteration = pace.iteration;
    if (pace.departure_gap == duration{0}) {
      const double stay = to_ms(pace.mean_iteration) * slots_.cautious_stay();
      pace.departure_gap = from_ms(stay / slots_.max_slots());
    }
    return pace;
  }
  template <decode_sink Sink>
  bool end_if_possible(sequence& s, finish_reason why, Sink& sink);
  [[nodiscard]] bool may_prefill() const noexcept {
    return !prompts_.empty() && slots_.waiting().size() < o_.max_prepared;
  }
  template <finish_sink Sink>
  std::span<sequence* const> hand_out(const prefill_decision& d, bool overtakes, Sink& sink);
  /// Records that a live slot has had its token.
  void answer_one() noexcept {
    if (--outstanding_ == 0) slots_.note_iteration();
  }
  void take_back(sequence& s) noexcept {
    std::erase(out_, &s);
    prompts_.settle(s);
    if (s.overtook) --overtaking_;
  }
  /// Why a sequence that has just had a token ends, if it does.
  [[nodiscard]] std::optional<finish_reason> reason_to_end(const sequence& s,
                                                           bool is_stop) const noexcept {
    if (is_stop) return finish_reason::stop;
    if (s.who.produced >= s.max_new) return finish_reason::length;
    if (outlives_position(s.who)) return finish_reason::context_length;
    if (s.cancel_requested) return finish_reason::cancelled;
    if (s.expired) return finish_reason::deadline;
    return std::nullopt;
  }
  template <finish_sink Sink>
  void finish(sequence& s, finish_reason why, Sink& sink) {
    s.state = sequence_state::idle;
    sink.finish(s, why);
  }

  scheduler_options o_;
  slot_keeper<Pick> slots_;
  prefill_queue<Admission> prompts_;
  std::vector<sequence*> out_;  // Under prefill, not yet answered.
  std::vector<sequence*> scratch_;
  std::size_t overtaking_ = 0;  // Those among these from `next_short_prefill`.
  time_point wake_ = never;
  std::uint64_t numbers_ = 0;
  std::uint32_t outstanding_ = 0;  // Slots that have not had their token in this iteration.
};

template <pick_policy Pick, admission_policy Admission>
std::optional<refusal> decode_scheduler<Pick, Admission>::submit(sequence& s) {
  COHORT_ASSERT(s.state == sequence_state::idle);
  const std::uint64_t most =
      std::min<std::uint64_t>(std::uint64_t{s.prompt} + s.max_new, o_.max_positions);
  if (s.prompt == 0 || s.max_new == 0 || s.prompt >= o_.max_positions ||
      !slots_.budget().can_run_alone(s.prompt, static_cast<std::uint32_t>(most - s.prompt),
                                     o_.batch.columns)) {
    return refusal::too_big;
  }
  if (prompts_.size() + out_.size() + slots_.waiting().size() >= o_.max_queued)
    return refusal::queue_full;
  s.state = sequence_state::queued;
  s.number = ++numbers_;
  s.cancel_requested = false;
  s.expired = false;
  s.who = {.id = s.id, .storage = 0, .prompt = s.prompt, .priority = s.priority};
  prompts_.push(s);
  return std::nullopt;
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
std::span<sequence* const> decode_scheduler<Pick, Admission>::next_prefill(const decode_load& pace,
                                                                           time_point now,
                                                                           Sink& sink) {
  wake_ = never;
  if (out_.size() - overtaking_ >= o_.max_prefilling || !may_prefill()) return {};
  const prefill_decision d = prompts_.next(load(pace), now);
  wake_ = d.wake;
  return hand_out(d, false, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
std::span<sequence* const> decode_scheduler<Pick, Admission>::next_short_prefill(
    std::uint32_t longest, const decode_load& pace, time_point now, Sink& sink) {
  if (overtaking_ >= o_.max_overtaking || !may_prefill()) return {};
  return hand_out(prompts_.next_short(longest, load(pace), now), true, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
std::span<sequence* const> decode_scheduler<Pick, Admission>::hand_out(const prefill_decision& d,
                                                                       bool overtakes, Sink& sink) {
  for (sequence* s : d.late) finish(*s, finish_reason::deadline, sink);
  for (sequence* s : d.group) {
    s->state = sequence_state::prefilling;
    s->overtook = overtakes;
  }
  if (overtakes) overtaking_ += d.group.size();
  out_.insert(out_.end(), d.group.begin(), d.group.end());
  return d.group;
}

template <pick_policy Pick, admission_policy Admission>
template <decode_sink Sink>
void decode_scheduler<Pick, Admission>::on_prefilled(sequence& s, std::uint64_t storage,
                                                     token_id token, bool is_stop, Sink& sink) {
  COHORT_ASSERT(s.state == sequence_state::prefilling);
  take_back(s);
  s.who.storage = storage;
  s.who.length = s.prompt;
  s.who.produced = 1;
  s.who.pending = token;
  if (const auto why = reason_to_end(s, is_stop)) {
    sink.release(storage);
    finish(s, *why, sink);
  } else {
    slots_.wait(s);
  }
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
void decode_scheduler<Pick, Admission>::on_prefill_failed(sequence& s, Sink& sink) {
  COHORT_ASSERT(s.state == sequence_state::prefilling);
  take_back(s);
  finish(s, finish_reason::error, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
void decode_scheduler<Pick, Admission>::on_prefill_dropped(sequence& s, Sink& sink) {
  COHORT_ASSERT(s.state == sequence_state::prefilling && (s.cancel_requested || s.expired));
  take_back(s);
  finish(s, s.cancel_requested ? finish_reason::cancelled : finish_reason::deadline, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <decode_sink Sink>
bool decode_scheduler<Pick, Admission>::end_if_possible(sequence& s, finish_reason why,
                                                        Sink& sink) {
  switch (s.state) {
    case sequence_state::idle:
    case sequence_state::prefilling:  // Its storage is being written.
      return false;
    case sequence_state::queued:
      prompts_.erase(s);
      break;
    case sequence_state::prepared:
      slots_.withdraw(s);
      sink.release(s.who.storage);
      break;
    case sequence_state::running:
      if (outstanding_ > 0) return false;
      slots_.remove(s.slot);
      break;
  }
  finish(s, why, sink);
  return true;
}

template <pick_policy Pick, admission_policy Admission>
template <decode_sink Sink>
bool decode_scheduler<Pick, Admission>::begin(time_point now, Sink& sink) {
  COHORT_ASSERT(outstanding_ == 0);
  scratch_.clear();
  for (sequence* s : prompts_.queued()) scratch_.push_back(s);
  for (std::size_t i = 0; i < slots_.waiting().size(); ++i) {
    scratch_.push_back(slots_.waiting()[i]);
  }
  for (std::uint32_t i = 0; i < batch().size(); ++i) {
    if (batch()[i].live) scratch_.push_back(&in_slot(i));
  }
  for (sequence* s : scratch_) {
    if (s->deadline > now) continue;
    s->expired = true;
    end_if_possible(*s, finish_reason::deadline, sink);
  }
  for (sequence* s : out_) {
    if (s->deadline <= now) s->expired = true;
  }

  if (!slots_.begin(sink)) return false;
  outstanding_ = batch().live();
  return true;
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
void decode_scheduler<Pick, Admission>::on_token(std::uint32_t slot, token_id token, bool is_stop,
                                                 Sink& sink) {
  COHORT_ASSERT(outstanding_ > 0 && batch()[slot].live);
  answer_one();
  slots_.produce(slot, token);
  sequence& s = in_slot(slot);
  const auto why = reason_to_end(s, is_stop);
  if (!why) return;
  slots_.remove(slot);
  finish(s, *why, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <finish_sink Sink>
void decode_scheduler<Pick, Admission>::on_token_failed(std::uint32_t slot, Sink& sink) {
  COHORT_ASSERT(outstanding_ > 0 && batch()[slot].live);
  answer_one();
  sequence& s = in_slot(slot);
  slots_.remove(slot);
  finish(s, finish_reason::error, sink);
}

template <pick_policy Pick, admission_policy Admission>
template <decode_sink Sink>
void decode_scheduler<Pick, Admission>::on_iteration_failed(Sink& sink) {
  COHORT_ASSERT(outstanding_ == 0 || outstanding_ == batch().live());
  outstanding_ = 0;
  for (std::uint32_t i = 0; i < batch().size(); ++i) {
    if (!batch()[i].live) continue;
    slots_.remove(i);
    finish(in_slot(i), finish_reason::error, sink);
  }
  for (std::size_t i = slots_.waiting().size(); i > 0; --i) {
    sequence& s = *slots_.waiting()[i - 1];
    if (slots_.is_unproven(s)) end_if_possible(s, finish_reason::error, sink);
  }
}

}  // namespace cohort::kv
