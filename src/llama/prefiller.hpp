// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prompts on a decoder: computed in pieces, long and short ones in turn, equal ones once.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/prompt/chunked_prefill.hpp>
#include <cohort/kv/prompt/prefill_pace.hpp>
#include <cohort/kv/prompt/prefill_promises.hpp>
#include <cohort/kv/prompt/prefix_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "decoder_backend.hpp"
#include "generation.hpp"
#include "prompt_storage.hpp"

namespace cohort::llama {

/// Moves a mean towards what was measured last.
template <class T>
void follow(T& mean, T last) {
  mean += (last - mean) / (mean == T{} ? 1 : 8);
}

/// Turns prompts into packed columns and a first result, one job of several pieces at a time. What
/// it is given it answers once, by a call of the loop's:
/// * `prefilled(generation&, storage, const row_result&, now)`: its columns, and what follows them;
/// * `prefill_failed(generation&)`;
/// * `prefill_dropped(generation&)`: it was cancelled or has expired, and is computed no further.
///
/// Before that `prefill_starts(members, expected, now)` says that a job begins with pieces of their
/// prompts, and how long it takes if that is known, and `prefill_progress(generation&, duration)`
/// what is left of a prompt, by the curve. Where first tokens are promised, pieces are by earliest
/// deadline; what cannot be in time any more even if nothing else were computed has expired.
///
/// From there only `storage()` may be used. Thread safety: none.
template <decoder_backend Backend>
class prefiller {
 public:
  /// @param backend Must outlive it.  @throws config_error If an option is outside its range.
  prefiller(Backend& backend, const generator_options& o)
      : backend_{backend},
        o_{o},
        measured_{{}, kv::prefill_pace{kv::prefill_curve{}.prompt(std::max(1U, job_size()))}},
        storage_{backend, o.prefix_bytes},
        long_chunks_{std::max(1U, o.prefill_chunk), o.promises()
                                                        ? kv::chunk_order::earliest_deadline
                                                        : kv::chunk_order::equal_progress},
        short_chunks_{std::max(1U, o.prefill_chunk), kv::chunk_order::equal_progress} {
    expects(o.prefill_chunk >= 1, "generator: prefill_chunk must be at least 1");
    expects(o.prefill_ahead >= 1, "generator: prefill_ahead must be at least 1");
  }
  prefiller(const prefiller&) = delete;
  prefiller& operator=(const prefiller&) = delete;

  /// Tokens of a job, at most; a prompt of no more is short.
  [[nodiscard]] std::uint32_t job_size() const noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(
        std::min(most, std::uint64_t{o_.prefill_chunk} * o_.prefill_ahead));
  }
  /// Whether the largest group of prompts could be staged; beside others, so that a quarter is left
  /// to what preemption packs, and an eighth to short prompts, which take it.
  [[nodiscard]] bool has_room(bool for_short) const noexcept;
  /// Computes a prompt as long as they come, until `limit` has passed, to know how long they take.
  /// Before all else.
  void calibrate(const std::function<time_point()>& clock, duration limit);
  /// What a promise would have to reckon with.
  [[nodiscard]] kv::prefill_rate rate(time_point now) const noexcept;
  /// How long a prompt will take alone, by the curve; 0 if another's columns will do.
  [[nodiscard]] duration work_of(const generation& g) const {
    return storage_.knows(g.text) ? duration{0} : measured_.curve.prompt(g.prompt);
  }
  /// Prompts that the scheduler has handed out.
  template <class Loop>
  void take(std::span<kv::sequence* const> group, time_point now, Loop& loop);
  /// Between two jobs: lets those go that were cancelled or have expired.
  template <class Loop>
  void drop_unwanted(time_point now, Loop& loop);
  /// The next job, if the decoder does none and there is something to compute.
  /// @returns Whether it was begun.
  template <class Loop>
  bool start(time_point now, Loop& loop);
  /// Answers those whose prompts a job has completed, if it is over.
  /// @param lag How long its end may have been there before it was looked for, on average.
  /// @returns Whether it is.
  template <class Loop>
  bool end(time_point now, duration lag, Loop& loop);
  [[nodiscard]] bool is_busy() const noexcept { return backend_.prefill() != prefill_state::idle; }
  /// What was measured, and what is to come. Stays where it is.
  [[nodiscard]] const measured_prefill::state& measured() const noexcept { return measured_; }
  /// Of preempted sequences, too, which share the limit.
  [[nodiscard]] prompt_storage<Backend>& storage() noexcept { return storage_; }
  [[nodiscard]] const prompt_storage<Backend>& storage() const noexcept { return storage_; }
  /// Computed since the start.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }

 private:
  static bool is_unwanted(const kv::sequence& s) noexcept {
    return s.cancel_requested || s.expired;
  }
  [[nodiscard]] kv::chunked_prefill& next_chunks() noexcept {
    if (long_chunks_.empty()) return short_chunks_;
    if (short_chunks_.empty()) return long_chunks_;
    return is_short_turn_ ? short_chunks_ : long_chunks_;
  }
  [[nodiscard]] std::uint64_t most_ends() const noexcept {
    return std::uint64_t{o_.max_prefilling} + o_.max_overtaking;
  }
  [[nodiscard]] duration left_of(const generation& g) const noexcept {
    return measured_.curve.between(g.staged, g.prompt);
  }
  [[nodiscard]] duration stretched(duration by_curve) const noexcept {
    return duration{static_cast<std::int64_t>(static_cast<double>(by_curve.count()) *
                                              measured_.pace.stretch())};
  }
  /// How long the job takes; nothing for the first one.
  [[nodiscard]] std::optional<duration> expected() const noexcept {
    if (!has_measured_) return std::nullopt;
    return stretched(job_time_);
  }
  [[nodiscard]] bool is_late(const generation& g, time_point now) const noexcept {
    return o_.promises() && static_cast<double>(left_of(g).count()) * measured_.pace.best() >
                                static_cast<double>((g.first_token_by - now).count());
  }
  template <class Loop>
  void compute(generation& g, Loop& loop);
  void give_up(generation& g);
  template <class Loop>
  void use_prefix(generation& g, std::uint64_t storage, time_point now, Loop& loop) {
    loop.prefilled(g, storage, storage_.first(storage), now);
  }
  template <class Loop>
  void look_at_followers(time_point now, Loop& loop);

  Backend& backend_;
  generator_options o_;
  measured_prefill::state measured_;
  prompt_storage<Backend> storage_;
  // Pieces are taken from both in turn: neither waits for all of the other. Promised ones are all
  // long.
  kv::chunked_prefill long_chunks_;
  kv::chunked_prefill short_chunks_;
  bool is_short_turn_ = true;
  std::unordered_map<std::uint64_t, generation*> computing_;  // By prefix, as chunks know them.
  std::vector<generation*> followers_;                        // Another computes their prompt.
  std::uint64_t tokens_ = 0;

  // The job.
  std::vector<prefill_piece> pieces_;
  std::vector<generation*> members_;  // Of each piece.
  std::vector<generation*> ends_;     // Whose prompt it completes, in its order.
  std::size_t job_tokens_ = 0;
  duration job_time_{0};  // By the curve.
  time_point job_begun_{};
  bool has_measured_ = false;  // A job, or by calibration.
};

template <decoder_backend Backend>
bool prefiller<Backend>::has_room(bool for_short) const noexcept {
  const std::uint64_t column = backend_.column_bytes();
  std::uint64_t longest = std::min(o_.longest_packed(), backend_.config().max_positions * column);
  if (for_short) longest = std::min(longest, job_size() * column);
  std::uint64_t group = o_.prefill.max_rows * longest;
  if (const std::uint64_t most = o_.prefill.max_positions * column; most > 0) {
    group = std::min(group, std::max(longest, most));
  }
  const bool is_alone = storage_.bytes() <= o_.prefix_bytes;
  const std::uint64_t eighths = is_alone ? 8 : for_short ? 6 : 5;
  return storage_.bytes() + group <= eighths * (o_.staging_bytes / 8) + o_.prefix_bytes;
}

template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::take(std::span<kv::sequence* const> group, time_point now, Loop& loop) {
  for (kv::sequence* s : std::vector<kv::sequence*>(group.begin(), group.end())) {
    auto& g = static_cast<generation&>(*s);
    const kv::prefix_hit hit = storage_.acquire(g.text);
    g.prefix = hit.entry;
    switch (hit.state) {
      case kv::prefix_state::absent:
        compute(g, loop);
        break;
      case kv::prefix_state::filling:
        followers_.push_back(&g);
        break;
      case kv::prefix_state::ready:
        use_prefix(g, hit.storage, now, loop);
        break;
    }
  }
}

template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::compute(generation& g, Loop& loop) {
  try {
    g.staging = storage_.allocate(g.prompt);
  } catch (
      const resource_error&) {  // What is free is in pieces: this text fails, the others go on.
    storage_.give_up(g.prefix);
    return loop.prefill_failed(g);
  }
  g.staged = 0;
  if (!o_.promises()) measured_.backlog += left_of(g);
  computing_.emplace(g.prefix, &g);
  const bool is_short = !o_.promises() && g.prompt <= job_size();
  (is_short ? short_chunks_ : long_chunks_)
      .push(request_id{g.prefix}, g.prompt, 0, g.first_token_by);
  loop.prefill_progress(g, measured_.curve.prompt(g.prompt));
}

template <decoder_backend Backend>
void prefiller<Backend>::calibrate(const std::function<time_point()>& clock, duration limit) {
  const auto longest = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      backend_.config().max_positions, o_.longest_packed() / backend_.column_bytes()));
  const std::uint32_t step = std::min(job_size(), longest);
  const std::vector<kv::token_id> text(longest);
  const auto time = [&](std::uint64_t storage, prefill_piece piece) {
    piece.storage = storage;
    piece.is_last = piece.first + piece.count == piece.tokens.size();
    const time_point begun = clock();
    backend_.start_prefill({&piece, 1});
    backend_.wait_for_prefill();
    backend_.end_prefill();
    return clock() - begun;
  };
  const time_point begun = clock();
  const std::uint64_t first = storage_.allocate(step);  // It touches memory for the first time.
  time(first, {.tokens = std::span{text}.first(step), .count = step});
  storage_.discard(first);
  const std::uint64_t storage = storage_.allocate(longest);
  const duration least = time(storage, {.tokens = text, .count = 1});
  std::vector<duration> steps;
  for (std::uint32_t at = 1; at + step <= longest; at += step) {
    steps.push_back(time(storage, {.tokens = text, .first = at, .count = step}));
    if (clock() - begun > limit) break;
  }
  storage_.discard(storage);
  if (steps.empty()) steps.push_back(least * step);
  const duration fixed = std::max(duration{0}, std::min(least, steps[0]) - steps[0] / step);
  for (duration& d : steps) d -= std::min(d, fixed);
  has_measured_ = true;
  measured_.curve = kv::prefill_curve{fixed, step, steps};
  measured_.pace = kv::prefill_pace{std::max(duration{1}, measured_.curve.prompt(step))};
}

template <decoder_backend Backend>
kv::prefill_rate prefiller<Backend>::rate(time_point now) const noexcept {
  kv::prefill_rate r{.stretch = measured_.pace.stretch(), .best = measured_.pace.best()};
  if (computing_.empty()) return r;
  if (is_busy()) r.busy = std::max(duration{0}, stretched(job_time_) - (now - job_begun_));
  // Whoever ends in a job waits for its end, so that jobs can be full. `start` sees to it where an
  // SLO leaves less time than that.
  const duration rest =
      measured_.curve.between(0, job_size() - std::min(job_size(), o_.prefill_chunk));
  r.busy += std::min(stretched(rest), o_.first_token / 8);
  return r;
}

/// Of a prompt that is computed no further and that no piece under way writes.
template <decoder_backend Backend>
void prefiller<Backend>::give_up(generation& g) {
  if (!o_.promises()) measured_.backlog -= left_of(g);
  if (!long_chunks_.cancel(request_id{g.prefix})) short_chunks_.cancel(request_id{g.prefix});
  storage_.give_up(g.prefix, g.staging);
}

/// What was computed of a prompt is the next one's who waits for it, if there is one.
template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::drop_unwanted(time_point now, Loop& loop) {
  if (is_busy()) return;
  for (const auto& [prefix, g] : computing_) g->expired = g->expired || is_late(*g, now);
  std::erase_if(followers_, [&](generation* g) {
    if (!is_unwanted(*g)) return false;
    storage_.leave(g->prefix);
    loop.prefill_dropped(*g);
    return true;
  });
  for (auto at = computing_.begin(); at != computing_.end();) {
    generation& g = *at->second;
    if (!is_unwanted(g)) {
      ++at;
      continue;
    }
    const auto heir = std::ranges::find(followers_, g.prefix, &generation::prefix);
    if (heir != followers_.end()) {
      (*heir)->staging = g.staging;
      (*heir)->staged = g.staged;
      at->second = *heir;
      loop.prefill_progress(**heir, left_of(**heir));
      followers_.erase(heir);
      storage_.leave(g.prefix);
      ++at;
    } else {
      at = computing_.erase(at);
      give_up(g);
    }
    loop.prefill_dropped(g);
  }
}

template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::look_at_followers(time_point now, Loop& loop) {
  std::erase_if(followers_, [&](generation* g) {
    const kv::prefix_hit hit = storage_.look(g->prefix);
    if (hit.state == kv::prefix_state::filling) return false;
    if (hit.state == kv::prefix_state::ready) {
      use_prefix(*g, hit.storage, now, loop);
    } else {
      compute(*g, loop);  // Whoever did has failed.
    }
    return true;
  });
}

template <decoder_backend Backend>
template <class Loop>
bool prefiller<Backend>::start(time_point now, Loop& loop) {
  if (is_busy() || next_chunks().empty()) return false;
  pieces_.clear();
  members_.clear();
  ends_.clear();
  job_tokens_ = 0;
  job_time_ = measured_.curve.fixed();
  time_point due = never;  // Of those who end with it.
  for (;;) {
    kv::chunked_prefill& from = next_chunks();
    const auto next = from.next();
    if (!next || job_tokens_ + next->count > job_size()) break;
    generation& g = *computing_.at(next->id.value());
    const duration piece = measured_.curve.between(next->first, next->first + next->count);
    // Whoever has ended waits for the end of the job: another piece must not make it late.
    if (due != never && stretched(job_time_ + piece) > due - now) break;
    // Backends keep results for as many as have places, which promised ones need not.
    if (o_.promises() && ends_.size() >= most_ends()) break;
    job_time_ += piece;
    if (next->is_last) due = std::min(due, g.first_token_by);
    pieces_.push_back({.tokens = g.text,
                       .storage = g.staging,
                       .first = next->first,
                       .count = next->count,
                       .is_last = next->is_last});
    members_.push_back(&g);
    if (next->is_last) ends_.push_back(&g);
    g.staged += next->count;
    loop.prefill_progress(g, left_of(g));
    job_tokens_ += next->count;
    is_short_turn_ = &from == &long_chunks_;
    from.complete();
  }
  tokens_ += job_tokens_;
  job_begun_ = now;
  loop.prefill_starts(members_, expected(), now);
  backend_.start_prefill(pieces_);
  return true;
}

template <decoder_backend Backend>
template <class Loop>
bool prefiller<Backend>::end(time_point now, duration lag, Loop& loop) {
  const prefill_state state = backend_.prefill();
  if (state != prefill_state::done && state != prefill_state::failed) return false;
  has_measured_ = true;
  if (!o_.promises()) measured_.backlog -= job_time_ - measured_.curve.fixed();
  // Where more is to come, the next job begins as late as this one's end is seen.
  const duration took = now - job_begun_;
  measured_.pace.note(job_time_, next_chunks().empty() ? took - std::min(took / 2, lag) : took);
  const auto fail = [&](generation& g) {
    give_up(g);
    loop.prefill_failed(g);
  };
  if (state == prefill_state::failed) {
    for (generation* g : members_) {
      if (computing_.erase(g->prefix) == 0) continue;  // Another piece of the same prompt.
      fail(*g);
    }
    backend_.end_prefill();
  } else {
    for (std::uint32_t i = 0; i < ends_.size(); ++i) {
      generation& g = *ends_[i];
      const row_result r = backend_.first(i);
      computing_.erase(g.prefix);
      if (!is_sound(r)) {  // Not kept for others: they see for themselves.
        fail(g);
        ends_[i] = nullptr;
        continue;
      }
      storage_.fill(g.prefix, g.staging, r);
    }
    backend_.end_prefill();
    for (generation* g : ends_) {
      if (g != nullptr) use_prefix(*g, g->staging, now, loop);
    }
  }
  look_at_followers(now, loop);
  return true;
}

}  // namespace cohort::llama
