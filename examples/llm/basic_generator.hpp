// SPDX-License-Identifier: Apache-2.0
/// @file
/// The loop of an LLM server over any decoder: admission, prefill in pieces, shared prompts, the
/// decode batch, sampling.
#pragma once

#include <cohort/core/error.hpp>
#include <cohort/core/outcome.hpp>
#include <cohort/core/time.hpp>
#include <cohort/kv/chunked_prefill.hpp>
#include <cohort/kv/prefix_store.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "decoder_backend.hpp"
#include "text_generator.hpp"

namespace cohort::llm {

/// Accepts requests, keeps the batch full, samples. Tokens do not depend on the backend, as far as
/// its logits do not. `text_generator` says what its functions do. Thread safety: none; one thread
/// owns it.
template <decoder_backend Backend>
class basic_generator final : public text_generator {
 public:
  /// @param backend Must outlive it, and be made for the same options.
  /// @throws config_error If an option is outside its range.
  basic_generator(Backend& backend, const generator_options& o)
      : backend_{backend},
        o_{o},
        scheduler_{options_of(backend, o), kv::best_fit{},
                   kv::slo_admission{admission_of(o), measured_prefill{&pace_}}},
        prefixes_{o.prefix_bytes / backend.column_bytes()},
        long_chunks_{std::max(1U, o.prefill_chunk), kv::chunk_order::equal_progress},
        short_chunks_{std::max(1U, o.prefill_chunk), kv::chunk_order::equal_progress} {
    expects(o.prefill_chunk >= 1, "generator: prefill_chunk must be at least 1");
    expects(o.prefill_ahead >= 1, "generator: prefill_ahead must be at least 1");
  }

  using text_generator::submit;
  std::optional<refusal> submit(generation& g, time_point now) override;
  void cancel(generation& g) override {
    sink out{*this};
    scheduler_.cancel(g, out);
  }
  /// For a caller's own reasons, between two turns: the sequence leaves and comes back.
  void preempt(generation& g) {
    sink out{*this};
    scheduler_.preempt(g, out);
  }
  bool turn(const std::function<time_point()>& clock) override;

  [[nodiscard]] const scheduler& state() const noexcept override { return scheduler_; }
  [[nodiscard]] std::uint64_t prefix_hits() const noexcept override { return prefix_hits_; }
  [[nodiscard]] std::uint64_t prefilled_tokens() const noexcept override {
    return prefilled_tokens_;
  }
  [[nodiscard]] std::uint64_t column_bytes() const noexcept override {
    return backend_.column_bytes();
  }

 private:
  struct sink {
    basic_generator& self;

    void execute(const kv::copy_plan& plan) { self.backend_.execute(plan); }
    std::uint64_t allocate(kv::sequence& /*s*/, std::uint32_t columns) {
      return self.allocate(columns);
    }
    void release(std::uint64_t storage) { self.release(storage); }
    void finish(kv::sequence& s, kv::finish_reason why) {
      static_cast<generation&>(s).finished = why;
    }
  };
  /// A prompt that is computed once for all that are equal.
  struct shared_prompt {
    std::uint64_t entry;
    std::optional<scored_token> best;
    std::vector<float> logits;  ///< Of its last token.
  };

  static kv::scheduler_options options_of(const Backend& b, const generator_options& o) {
    return {.batch = {.slots = o.slots, .columns = o.columns},
            .max_slots = o.slots,
            .max_queued = o.max_queued,
            .max_prepared = o.max_prepared,
            .max_prefilling = o.max_prefilling,
            .max_overtaking = o.max_overtaking,
            .max_positions = static_cast<std::uint32_t>(b.config().max_positions),
            .prefill = o.prefill,
            .budget = o.budget(b.column_bytes())};
  }
  /// Without promises this is first come, first served, at once.
  static kv::slo_options admission_of(const generator_options& o) {
    return {.between_tokens = o.between_tokens, .await_slot = o.between_tokens < unbounded};
  }
  static bool is_unwanted(const kv::sequence& s) noexcept {
    return s.cancel_requested || s.expired;
  }
  /// Whether the most likely token is all that it takes.
  static bool is_plain(const generation& g) noexcept {
    return g.how.temperature == 0 && g.how.presence_penalty == 0 && g.how.frequency_penalty == 0 &&
           g.how.logprobs == 0;
  }
  /// Whether a token can be chosen by it.
  static bool is_sound(const row_result& r) noexcept {
    return (!r.best || std::isfinite(r.best->logprob)) &&
           (r.logits.empty() || is_distribution(r.logits));
  }
  /// Moves a mean towards what was measured last.
  template <class T>
  static void follow(T& mean, T last) {
    mean += (last - mean) / (mean == T{} ? 1 : 8);
  }

  std::uint64_t allocate(std::uint32_t columns) {
    const std::uint64_t storage = backend_.allocate(columns);
    staged_bytes_ += columns * backend_.column_bytes();
    return storage;
  }
  void release(std::uint64_t storage);
  void leave_prefix(std::uint64_t entry);
  /// No longer counted. @returns It, for the backend to free.
  std::uint64_t forget(std::uint64_t storage) {
    staged_bytes_ -= backend_.packed_columns(storage) * backend_.column_bytes();
    return storage;
  }
  bool accept(generation& g, const row_result& r, time_point now, kv::token_id& token);
  /// Tokens of a job, at most; a prompt of no more is short.
  [[nodiscard]] std::uint32_t job_size() const noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(
        std::min(most, std::uint64_t{o_.prefill_chunk} * o_.prefill_ahead));
  }
  [[nodiscard]] kv::chunked_prefill& next_chunks() noexcept {
    if (long_chunks_.empty()) return short_chunks_;
    if (short_chunks_.empty()) return long_chunks_;
    return is_short_turn_ ? short_chunks_ : long_chunks_;
  }
  [[nodiscard]] std::uint64_t group_bytes(std::uint64_t longest) const noexcept;
  void accept_prompts(time_point now);
  void accept(std::span<kv::sequence* const> group, time_point now);
  void compute(generation& g);
  void use_prefix(generation& g, std::uint64_t storage, time_point now);
  void give_up(generation& g);
  void fail(generation& g);
  void drop_unwanted();
  void look_at_followers(time_point now);
  void start_prefill(time_point now);
  void end_prefill(time_point now);

  Backend& backend_;
  generator_options o_;
  measured_prefill::pace pace_;
  duration iteration_time_{0};  // Of late.
  scheduler scheduler_;
  kv::prefix_store prefixes_;
  // Pieces are taken from both in turn: neither waits for all of the other.
  kv::chunked_prefill long_chunks_;
  kv::chunked_prefill short_chunks_;
  bool is_short_turn_ = true;
  std::unordered_map<std::uint64_t, shared_prompt> shared_;   // By storage.
  std::unordered_map<std::uint64_t, generation*> computing_;  // By prefix, as chunks know them.
  std::vector<generation*> followers_;                        // Another computes their prompt.
  std::uint64_t staged_bytes_ = 0;
  std::uint64_t prefix_hits_ = 0;
  std::uint64_t prefilled_tokens_ = 0;
  sampler sampler_;

  // The job under prefill.
  std::vector<prefill_piece> pieces_;
  std::vector<generation*> members_;  // Of each piece.
  std::vector<generation*> ends_;     // Whose prompt it completes, in its order.
  std::size_t job_tokens_ = 0;
  time_point job_begun_{};
};

template <decoder_backend Backend>
std::optional<refusal> basic_generator<Backend>::submit(generation& g, time_point now) {
  const llama_config& c = backend_.config();
  g.how.check();
  expects(!g.text.empty(), "generation: the prompt must have at least one token");
  for (const kv::token_id t : g.text) {
    expects(t >= 0 && static_cast<std::size_t>(t) < c.vocabulary,
            "generation: the prompt's tokens must be of the vocabulary");
  }
  if (g.text.size() >= c.max_positions) return refusal::too_big;
  g.prompt = static_cast<std::uint32_t>(g.text.size());
  g.produced.clear();
  g.times.clear();
  g.finished.reset();
  const std::uint64_t packed =
      std::min<std::uint64_t>(std::uint64_t{g.prompt} + g.max_new, c.max_positions) *
      backend_.column_bytes();
  if (packed > o_.longest_packed()) return refusal::too_big;
  g.first_token_by = o_.first_token < unbounded ? now + o_.first_token : never;
  return scheduler_.submit(g);
}

/// Of a prompt, it stays while somebody may need it again.
template <decoder_backend Backend>
void basic_generator<Backend>::release(std::uint64_t storage) {
  const auto at = shared_.find(storage);
  if (at == shared_.end()) {
    backend_.release(forget(storage));
    return;
  }
  leave_prefix(at->second.entry);
}

/// Ends one use of an entry; frees those that need not be kept any more.
template <decoder_backend Backend>
void basic_generator<Backend>::leave_prefix(std::uint64_t entry) {
  prefixes_.release(entry, [&](std::uint64_t dropped) {
    shared_.erase(dropped);
    backend_.release(forget(dropped));
  });
}

/// Notes a token. @returns Whether the text ends with it.
template <decoder_backend Backend>
bool basic_generator<Backend>::accept(generation& g, const row_result& r, time_point now,
                                      kv::token_id& token) {
  sampled s;
  if (is_plain(g) && r.best) {
    s.chosen = *r.best;
  } else {
    s = sampler_.sample(r.logits, g.how, g.produced.size(), g.produced);
  }
  token = s.chosen.token;
  g.produced.push_back(token);
  g.times.push_back(now);
  if (std::ranges::find(g.stop_tokens, token) != g.stop_tokens.end()) return true;
  return g.on_token && g.on_token(g, s);
}

/// What the largest group of prompts up to `longest` bytes takes.
template <decoder_backend Backend>
std::uint64_t basic_generator<Backend>::group_bytes(std::uint64_t longest) const noexcept {
  const std::uint64_t all = o_.prefill.max_rows * longest;
  const std::uint64_t columns = o_.prefill.max_positions * backend_.column_bytes();
  return columns > 0 ? std::min(all, std::max(longest, columns)) : all;
}

/// Takes prompts in while the largest group could be staged, and beside others while that leaves a
/// quarter to what preemption packs, and an eighth to short prompts. These take it.
template <decoder_backend Backend>
void basic_generator<Backend>::accept_prompts(time_point now) {
  const kv::decode_load pace{.iteration = iteration_time_};
  const std::uint64_t column = backend_.column_bytes();
  const std::uint64_t eighth = o_.staging_bytes / 8;
  const std::uint64_t longest =  // As `submit` has it.
      std::min(o_.longest_packed(), backend_.config().max_positions * column);
  sink out{*this};
  const auto has_room = [&](std::uint64_t bytes, std::uint64_t eighths) {
    const bool is_alone = staged_bytes_ <= o_.prefix_bytes;
    return staged_bytes_ + bytes <= (is_alone ? 8 : eighths) * eighth + o_.prefix_bytes;
  };
  while (has_room(group_bytes(longest), 5)) {
    const auto group = scheduler_.next_prefill(pace, now, out);
    if (group.empty()) break;
    accept(group, now);
  }
  while (has_room(group_bytes(std::min(longest, job_size() * column)), 6)) {
    const auto group = scheduler_.next_short_prefill(job_size(), pace, now, out);
    if (group.empty()) break;
    accept(group, now);
  }
}

template <decoder_backend Backend>
void basic_generator<Backend>::accept(std::span<kv::sequence* const> group, time_point now) {
  for (kv::sequence* s : std::vector<kv::sequence*>(group.begin(), group.end())) {
    auto& g = static_cast<generation&>(*s);
    const kv::prefix_hit hit = prefixes_.acquire(g.text);
    g.prefix = hit.entry;
    switch (hit.state) {
      case kv::prefix_state::absent:
        compute(g);
        break;
      case kv::prefix_state::filling:
        ++prefix_hits_;
        followers_.push_back(&g);
        break;
      case kv::prefix_state::ready:
        ++prefix_hits_;
        use_prefix(g, hit.storage, now);
        break;
    }
  }
}

template <decoder_backend Backend>
void basic_generator<Backend>::compute(generation& g) {
  g.staging = allocate(g.prompt);
  g.staged = 0;
  pace_.backlog += g.prompt;
  computing_.emplace(g.prefix, &g);
  (g.prompt <= job_size() ? short_chunks_ : long_chunks_).push(request_id{g.prefix}, g.prompt);
}

/// Of a prompt that is computed no further and that no piece under way writes.
template <decoder_backend Backend>
void basic_generator<Backend>::give_up(generation& g) {
  pace_.backlog -= g.prompt - g.staged;
  if (!long_chunks_.cancel(request_id{g.prefix})) short_chunks_.cancel(request_id{g.prefix});
  prefixes_.abandon(g.prefix);
  leave_prefix(g.prefix);
  backend_.discard(forget(g.staging));
}

/// The first token of a prompt that is in storage, from the result that came with it.
template <decoder_backend Backend>
void basic_generator<Backend>::use_prefix(generation& g, std::uint64_t storage, time_point now) {
  sink out{*this};
  const shared_prompt& p = shared_.at(storage);
  kv::token_id token = 0;
  const bool ends = accept(g, {p.best, p.logits}, now, token);
  scheduler_.on_prefilled(g, storage, token, ends, out);
}

template <decoder_backend Backend>
void basic_generator<Backend>::fail(generation& g) {
  sink out{*this};
  give_up(g);
  scheduler_.on_prefill_failed(g, out);
}

/// Between two jobs: lets those go that were cancelled or have expired. What was computed of a
/// prompt is the next one's who waits for it, if there is one.
template <decoder_backend Backend>
void basic_generator<Backend>::drop_unwanted() {
  sink out{*this};
  std::erase_if(followers_, [&](generation* g) {
    if (!is_unwanted(*g)) return false;
    leave_prefix(g->prefix);
    scheduler_.on_prefill_dropped(*g, out);
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
      followers_.erase(heir);
      leave_prefix(g.prefix);
      ++at;
    } else {
      at = computing_.erase(at);
      give_up(g);
    }
    scheduler_.on_prefill_dropped(g, out);
  }
}

template <decoder_backend Backend>
void basic_generator<Backend>::look_at_followers(time_point now) {
  std::erase_if(followers_, [&](generation* g) {
    const kv::prefix_hit hit = prefixes_.look(g->prefix);
    if (hit.state == kv::prefix_state::filling) return false;
    if (hit.state == kv::prefix_state::ready) {
      use_prefix(*g, hit.storage, now);
    } else {
      compute(*g);  // Whoever did has failed.
    }
    return true;
  });
}

template <decoder_backend Backend>
void basic_generator<Backend>::start_prefill(time_point now) {
  if (backend_.prefill() == prefill_state::idle) drop_unwanted();
  accept_prompts(now);
  if (next_chunks().empty() || backend_.prefill() != prefill_state::idle) return;
  pieces_.clear();
  members_.clear();
  ends_.clear();
  job_tokens_ = 0;
  for (;;) {
    kv::chunked_prefill& from = next_chunks();
    const auto next = from.next();
    if (!next || job_tokens_ + next->count > job_size()) break;
    generation& g = *computing_.at(next->id.value());
    pieces_.push_back({.tokens = g.text,
                       .storage = g.staging,
                       .first = next->first,
                       .count = next->count,
                       .is_last = next->is_last});
    members_.push_back(&g);
    if (next->is_last) ends_.push_back(&g);
    g.staged += next->count;
    job_tokens_ += next->count;
    is_short_turn_ = &from == &long_chunks_;
    from.complete();
  }
  prefilled_tokens_ += job_tokens_;
  job_begun_ = now;
  backend_.start_prefill(pieces_);
}

template <decoder_backend Backend>
void basic_generator<Backend>::end_prefill(time_point now) {
  const prefill_state state = backend_.prefill();
  if (state != prefill_state::done && state != prefill_state::failed) return;
  pace_.backlog -= job_tokens_;
  follow(pace_.ns_per_token,
         static_cast<double>((now - job_begun_).count()) / static_cast<double>(job_tokens_));
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
      prefixes_.fill(g.prefix, g.staging);
      shared_.insert_or_assign(g.staging,
                               shared_prompt{g.prefix, r.best, {r.logits.begin(), r.logits.end()}});
    }
    backend_.end_prefill();
    for (generation* g : ends_) {
      if (g != nullptr) use_prefix(*g, g->staging, now);
    }
  }
  look_at_followers(now);
}

template <decoder_backend Backend>
bool basic_generator<Backend>::turn(const std::function<time_point()>& clock) {
  end_prefill(clock());
  start_prefill(clock());
  sink out{*this};
  if (!scheduler_.begin(clock(), out)) {
    if (backend_.prefill() != prefill_state::idle) {
      backend_.wait_for_prefill();
      end_prefill(clock());
    }
    return !scheduler_.empty();
  }

  const kv::decode_batch& batch = scheduler_.batch();
  bool logits = false;
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (batch[i].live) {
      logits = logits || !is_plain(static_cast<generation&>(scheduler_.in_slot(i)));
    }
  }
  const time_point begun = clock();
  if (!backend_.iterate(batch, logits)) {
    throw config_error{"generator: an iteration failed on the device"};
  }
  const time_point now = clock();
  follow(iteration_time_, now - begun);
  for (std::uint32_t i = 0; i < batch.size(); ++i) {
    if (!batch[i].live) continue;
    auto& g = static_cast<generation&>(scheduler_.in_slot(i));
    const row_result r = backend_.of_slot(i);
    if (!is_sound(r)) {
      scheduler_.on_token_failed(i, out);
      continue;
    }
    kv::token_id token = 0;
    const bool ends = accept(g, r, now, token);
    scheduler_.on_token(i, token, ends, out);
  }
  return true;
}

}  // namespace cohort::llm
