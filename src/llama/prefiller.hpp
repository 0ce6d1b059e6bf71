// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prompts on a decoder: computed in pieces, long and short ones in turn, equal ones once.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/batch/sequence.hpp>
#include <cohort/kv/prompt/chunked_prefill.hpp>
#include <cohort/kv/prompt/prefill_promises.hpp>
#include <cohort/kv/prompt/prefix_store.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decoder_backend.hpp"
#include "generation.hpp"
#include "prefill_times.hpp"
#include "prompt_storage.hpp"

namespace cohort::llama {

/// Turns prompts into packed columns and a first result, one job of several pieces at a time. What
/// it is given it answers once, by a call of the loop's:
/// * `prefilled(generation&, storage, const row_result&, now)`: its columns, and what follows them;
/// * `prefill_failed(generation&)`;
/// * `prefill_dropped(generation&)`: it was cancelled or has expired, and is computed no further.
///
/// Before that `prefill_starts(members, expected, now)` says that a job begins with pieces of their
/// prompts, and how long it takes if that is known; `prefill_returned(now)`, or
/// `prefill_broke(why, now)`, that it is over; and `prefill_progress(generation&, duration)` what
/// is left of a prompt, by the curve. Where first tokens are promised, pieces are by earliest
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
        times_{job_size()},
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
  /// As `prefill_times`.
  bool forget(time_point now) noexcept { return times_.forget(now); }
  /// How long a prompt will take alone, by the curve; 0 if another's columns will do.
  [[nodiscard]] duration work_of(const generation& g) const {
    return storage_.knows(g.text) ? duration{0} : times_.curve().prompt(g.prompt);
  }
  /// Prompts that the scheduler has handed out.
  template <class Loop>
  void take(std::span<kv::sequence* const> group, time_point now, Loop& loop);
  /// Between two jobs: lets those go that were cancelled or have expired.
  template <class Loop>
  void drop_unwanted(time_point now, Loop& loop);
  /// The next job, if the decoder does none and there is something to compute.
  template <class Loop>
  void start(time_point now, Loop& loop);
  /// Answers those whose prompts a job has completed, if it is over; of one that failed, all whose
  /// prompts were in it.
  /// @param lag How long its end may have been there before it was looked for, on average.
  template <class Loop>
  void end(time_point now, duration lag, Loop& loop);
  [[nodiscard]] bool is_busy() const noexcept { return backend_.prefill() != prefill_state::idle; }
  /// What was measured, and what is to come. Stays where it is.
  [[nodiscard]] const measured_prefill::state& measured() const noexcept {
    return times_.measured();
  }
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
    return times_.curve().between(g.staged, g.prompt);
  }
  [[nodiscard]] bool is_late(const generation& g, time_point now) const noexcept {
    return o_.promises() &&
           static_cast<double>(left_of(g).count()) * times_.measured().pace.best() >
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
  template <class Loop>
  void fail_job(std::string_view why, time_point now, Loop& loop);
  /// Of what is to come, where that is counted.
  void settle_job() noexcept {
    if (!o_.promises()) times_.add_backlog(times_.curve().fixed() - job_time_);
  }
  template <class Loop>
  void fail(generation& g, Loop& loop) {
    give_up(g);
    loop.prefill_failed(g);
  }

  Backend& backend_;
  generator_options o_;
  prefill_times times_;
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
  if (!o_.promises()) times_.add_backlog(left_of(g));
  computing_.emplace(g.prefix, &g);
  const bool is_short = !o_.promises() && g.prompt <= job_size();
  (is_short ? short_chunks_ : long_chunks_)
      .push(request_id{g.prefix}, g.prompt, 0, g.first_token_by);
  loop.prefill_progress(g, times_.curve().prompt(g.prompt));
}

template <decoder_backend Backend>
void prefiller<Backend>::calibrate(const std::function<time_point()>& clock, duration limit) {
  const auto longest = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      backend_.config().max_positions, o_.longest_packed() / backend_.column_bytes()));
  const std::uint32_t step = std::min(job_size(), longest);
  times_.set(measure_prefill(backend_, storage_, step, longest, clock, limit), step);
}

template <decoder_backend Backend>
kv::prefill_rate prefiller<Backend>::rate(time_point now) const noexcept {
  const kv::prefill_pace& pace = times_.measured().pace;
  kv::prefill_rate r{.stretch = pace.stretch(), .best = pace.best()};
  if (computing_.empty()) return r;
  if (is_busy()) r.busy = std::max(duration{0}, times_.stretched(job_time_) - (now - job_begun_));
  // Whoever ends in a job waits for its end, so that jobs can be full. `start` sees to it where an
  // SLO leaves less time than that.
  const duration rest =
      times_.curve().between(0, job_size() - std::min(job_size(), o_.prefill_chunk));
  r.busy += std::min(times_.stretched(rest), o_.first_token / 8);
  return r;
}

/// Of a prompt that is computed no further and that no piece under way writes.
template <decoder_backend Backend>
void prefiller<Backend>::give_up(generation& g) {
  if (!o_.promises()) times_.add_backlog(-left_of(g));
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
void prefiller<Backend>::start(time_point now, Loop& loop) {
  if (is_busy() || next_chunks().empty()) return;
  pieces_.clear();
  members_.clear();
  ends_.clear();
  job_tokens_ = 0;
  job_time_ = times_.curve().fixed();
  time_point due = never;  // Of those who end with it.
  for (;;) {
    kv::chunked_prefill& from = next_chunks();
    const auto next = from.next();
    if (!next || job_tokens_ + next->count > job_size()) break;
    generation& g = *computing_.at(next->id.value());
    const duration piece = times_.curve().between(next->first, next->first + next->count);
    // Whoever has ended waits for the end of the job: another piece must not make it late.
    if (due != never && times_.stretched(job_time_ + piece) > due - now) break;
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
  loop.prefill_starts(members_, times_.expected(job_time_), now);
  try {
    backend_.start_prefill(pieces_);
  } catch (const std::exception& e) {
    fail_job(e.what(), now, loop);
    look_at_followers(now, loop);
  }
}

/// Of one that says nothing of how long prompts take.
template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::fail_job(std::string_view why, time_point now, Loop& loop) {
  loop.prefill_broke(why, now);
  settle_job();
  for (auto at = members_.begin(); at != members_.end(); ++at) {
    // Another piece of a prompt that has ended before in this loop, and may be gone.
    if (std::find(members_.begin(), at, *at) != at) continue;
    computing_.erase((*at)->prefix);
    fail(**at, loop);
  }
}

template <decoder_backend Backend>
template <class Loop>
void prefiller<Backend>::end(time_point now, duration lag, Loop& loop) {
  const prefill_state state = backend_.prefill();
  if (state == prefill_state::failed) {
    fail_job(backend_.error(device_work::prefill), now, loop);
    backend_.end_prefill();
  } else if (state == prefill_state::done) {
    loop.prefill_returned(now);
    // Where more is to come, the next job begins as late as this one's end is seen.
    times_.note(job_time_, now - job_begun_, next_chunks().empty() ? lag : duration{0}, now);
    settle_job();
    for (std::uint32_t i = 0; i < ends_.size(); ++i) {
      generation& g = *ends_[i];
      const row_result r = backend_.first(i);
      computing_.erase(g.prefix);
      if (!is_sound(r)) {  // Not kept for others: they see for themselves.
        fail(g, loop);
        ends_[i] = nullptr;
        continue;
      }
      storage_.fill(g.prefix, g.staging, r);
    }
    backend_.end_prefill();
    for (generation* g : ends_) {
      if (g != nullptr) use_prefix(*g, g->staging, now, loop);
    }
  } else {
    return;
  }
  look_at_followers(now, loop);
}

}  // namespace cohort::llama
