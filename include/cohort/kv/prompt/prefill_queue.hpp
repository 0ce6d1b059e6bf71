// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prompts that wait for prefill, and the group that starts next.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/prompt/admission_policy.hpp>
#include <cohort/kv/prompt/prefill_groups.hpp>
#include <cohort/kv/prompt/prefill_promises.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace cohort::kv {

/// The next action of a prompt queue. Its spans are valid until the queue's next call.
struct prefill_decision {
  std::span<sequence* const> group{};  ///< Ascending by length; empty: no group starts.
  std::span<sequence* const> late{};   ///< Given up: their first tokens cannot be in time any more.
  time_point wake = never;  ///< With no group: ask again then, or when a sequence comes or leaves.
};

/// Prompts in their order of service. A group forms around the first one: the prompt that adds the
/// least padding joins while `prefill_limits` hold and, by the policy, all of the group stay in
/// time. The group starts when its window is open. Prompts that can no longer be in time are given
/// up, or served when no other prompt waits. A policy that promises keeps the promises until
/// prefill has ended; its groups are those due first, and must not take longer together than one by
/// one. Allocates to grow. Thread safety: none. O(waiting · log waiting) a decision, O(1) if none
/// waits.
template <admission_policy Admission = start_at_once>
class prefill_queue {
 public:
  /// @throws config_error If a limit is outside its range.
  explicit prefill_queue(const prefill_limits& limits, Admission admission = {})
      : groups_{limits}, admission_{admission} {}

  [[nodiscard]] const Admission& admission() const noexcept { return admission_; }
  [[nodiscard]] bool empty() const noexcept { return queued_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return queued_.size(); }
  /// In no particular order.
  [[nodiscard]] std::span<sequence* const> queued() const noexcept { return queued_; }
  void reserve(std::size_t prompts) { queued_.reserve(prompts); }

  [[nodiscard]] static waiting_prompt view_of(const sequence& s) noexcept {
    return {s.number, s.prompt, s.priority, s.first_token_by};
  }
  /// Whether prefill of a prompt alone, started now, would be in time.
  [[nodiscard]] bool can_meet(const sequence& s, const decode_load& load,
                              time_point now) const noexcept {
    return admission_.can_meet({1, s.prompt, s.prompt}, s.first_token_by, load, now);
  }

  /// Whether a prompt that arrives now may be accepted. A policy that promises accepts it if it can
  /// be promised; a policy that gives up late prompts, if the prompt alone would be in time.
  [[nodiscard]] bool can_take(const sequence& s, const decode_load& load,
                              time_point now) const noexcept {
    if (!is_promised(s)) return !admission_.drops_late() || can_meet(s, load, now);
    return promises_.can_take(s.first_token_by, s.work, now, load.prefill);
  }
  /// When a prompt like this one, refused now, could be promised at the latest, if no other
  /// arrives; `never`: not even alone, or it was refused for another reason.
  [[nodiscard]] time_point takes_from(const sequence& s, const decode_load& load,
                                      time_point now) const noexcept {
    if (!is_promised(s)) return never;
    return promises_.takes_from(s.first_token_by - now, s.work, now, load.prefill);
  }

  /// Its `number` must be set and higher than those before.
  void push(sequence& s) {
    queued_.push_back(&s);
    if (is_promised(s)) promises_.add({s.number, s.first_token_by, s.work});
  }
  /// @returns Whether it was there.
  bool erase(const sequence& s) noexcept {
    promises_.erase(s.number);
    return std::erase(queued_, &s) > 0;
  }
  /// Updates the work that is left of a prompt that was pushed and is not yet settled.
  void note_work(sequence& s, duration work) noexcept {
    s.work = work;
    promises_.set_work(s.number, work);
  }
  /// The prefill of a prompt that was taken out has ended, successfully or not.
  void settle(const sequence& s) noexcept { promises_.erase(s.number); }

  /// Takes out the group to start now and the prompts to give up.
  prefill_decision next(const decode_load& load, time_point now);
  /// The same, ignoring prompts of more than `longest` tokens; the group is empty if the policy
  /// promises.
  prefill_decision next_short(std::uint32_t longest, const decode_load& load, time_point now);

 private:
  [[nodiscard]] bool is_promised(const sequence& s) const noexcept {
    return admission_.promises() && s.first_token_by != never;
  }
  [[nodiscard]] time_point earliest_of(std::span<const std::uint32_t> members) const noexcept {
    time_point by = never;
    for (const std::uint32_t i : members) by = std::min(by, queued_[i]->first_token_by);
    return by;
  }
  std::size_t split(const decode_load& load, time_point now);
  std::span<const std::uint32_t> form(std::size_t hopeful, const decode_load& load, time_point now);
  std::span<const std::uint32_t> first_due(std::size_t count, const decode_load& load,
                                           time_point now);
  void take(std::span<const std::uint32_t> members);

  prefill_groups groups_;
  [[no_unique_address]] Admission admission_;
  prefill_promises promises_;
  std::vector<sequence*> queued_;
  std::vector<sequence*> group_;
  std::vector<sequence*> late_;
  std::vector<sequence*> lost_;
  std::vector<std::uint32_t> lengths_;  // With promises: indices of those due first.
  std::vector<sequence*> aside_;
};

template <admission_policy Admission>
prefill_decision prefill_queue<Admission>::next(const decode_load& load, time_point now) {
  group_.clear();
  late_.clear();
  const std::size_t hopeful = split(load, now);
  const auto middle = queued_.begin() + static_cast<std::ptrdiff_t>(hopeful);
  if (admission_.drops_late()) {
    late_.assign(middle, queued_.end());
    queued_.erase(middle, queued_.end());
    std::ranges::sort(late_, {}, &sequence::number);
    for (const sequence* s : late_) settle(*s);
  }
  if (queued_.empty()) return {.late = late_};

  const std::span<const std::uint32_t> members = form(hopeful, load, now);
  group_view view{.first_token_by = hopeful > 0 ? earliest_of(members) : never};
  for (const std::uint32_t i : members) {
    ++view.shape.rows;
    view.shape.longest = std::max(view.shape.longest, queued_[i]->prompt);
    view.shape.tokens += queued_[i]->prompt;
  }
  const prefill_limits& limits = groups_.limits();
  prefill_shape more = view.shape;
  ++more.rows;
  view.is_full = view.shape.rows >= limits.max_rows || !admission_.can_seat(more, load) ||
                 (limits.max_positions > 0 && more.positions() > limits.max_positions);
  const start_window window = admission_.window(view, load, now);
  if (window.earliest > now) return {.late = late_, .wake = window.earliest};
  take(members);
  return {.group = group_, .late = late_};
}

template <admission_policy Admission>
prefill_decision prefill_queue<Admission>::next_short(std::uint32_t longest,
                                                      const decode_load& load, time_point now) {
  const auto is_long = [&](const sequence* s) { return s->prompt > longest; };
  if (admission_.promises() || std::ranges::all_of(queued_, is_long)) return {};
  aside_.clear();
  std::ranges::copy_if(queued_, std::back_inserter(aside_), is_long);
  std::erase_if(queued_, is_long);
  const prefill_decision d = next(load, now);
  queued_.insert(queued_.end(), aside_.begin(), aside_.end());
  return d;
}

/// Puts those that can be in time first, each part in order of service. @returns How many can.
template <admission_policy Admission>
std::size_t prefill_queue<Admission>::split(const decode_load& load, time_point now) {
  const auto before = [&](const sequence* a, const sequence* b) {
    return admission_.goes_before(view_of(*a), view_of(*b));
  };
  std::ranges::sort(queued_, before);
  lost_.clear();
  // std::stable_partition would allocate each time.
  const auto keep = [&](auto can) {
    std::size_t kept = 0;
    for (sequence* s : queued_) {
      if (can(*s)) {
        queued_[kept++] = s;
      } else {
        lost_.push_back(s);
      }
    }
    queued_.resize(kept);
  };
  keep([&](const sequence& s) { return can_meet(s, load, now); });
  if (const std::uint64_t target = admission_.target(load); target > 0) {
    std::uint64_t waiting = 0;
    for (const sequence* s : queued_) waiting += s->prompt;
    keep([&](const sequence& s) {
      // A prompt that is given up does not make a group larger.
      const std::uint64_t tokens = std::max<std::uint64_t>(s.prompt, std::min(target, waiting));
      const bool can = admission_.can_meet({1, s.prompt, tokens}, s.first_token_by, load, now);
      if (!can) waiting -= s.prompt;
      return can;
    });
    std::ranges::sort(lost_, before);
  }
  const std::size_t hopeful = queued_.size();
  queued_.insert(queued_.end(), lost_.begin(), lost_.end());
  return hopeful;
}

/// Forms a group of the hopeful prompts, if there are any; otherwise of the late ones.
template <admission_policy Admission>
std::span<const std::uint32_t> prefill_queue<Admission>::form(std::size_t hopeful,
                                                              const decode_load& load,
                                                              time_point now) {
  lengths_.clear();
  const std::size_t count = hopeful > 0 ? hopeful : queued_.size();
  if (admission_.promises()) return first_due(count, load, now);
  for (std::size_t i = 0; i < count; ++i) lengths_.push_back(queued_[i]->prompt);
  return groups_.next(
      lengths_, [&](std::span<const std::uint32_t> members, const prefill_shape& shape) {
        if (!admission_.can_seat(shape, load)) return false;
        return hopeful == 0 || admission_.can_meet(shape, earliest_of(members), load, now);
      });
}

/// A prompt that joins must not make those due before it late.
template <admission_policy Admission>
std::span<const std::uint32_t> prefill_queue<Admission>::first_due(std::size_t count,
                                                                   const decode_load& load,
                                                                   time_point now) {
  const prefill_limits& limits = groups_.limits();
  prefill_shape group;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t length = queued_[i]->prompt;
    const prefill_shape more{group.rows + 1, std::max(group.longest, length),
                             group.tokens + length};
    const bool fits = more.rows <= limits.max_rows &&
                      (limits.max_positions == 0 || more.positions() <= limits.max_positions) &&
                      static_cast<double>(more.positions() - more.tokens) <=
                          limits.max_waste * static_cast<double>(more.tokens);
    const bool joins = fits && admission_.can_seat(more, load) &&
                       admission_.can_meet(more, queued_[0]->first_token_by, load, now);
    if (i > 0 && !joins) break;
    lengths_.push_back(static_cast<std::uint32_t>(i));
    group = more;
  }
  return lengths_;
}

template <admission_policy Admission>
void prefill_queue<Admission>::take(std::span<const std::uint32_t> members) {
  for (const std::uint32_t i : members) group_.push_back(queued_[i]);
  for (const std::uint32_t i : members) queued_[i] = nullptr;
  std::erase(queued_, nullptr);
}

}  // namespace cohort::kv
