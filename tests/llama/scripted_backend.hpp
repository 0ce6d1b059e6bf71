// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decoder that computes nothing: its tokens follow from the texts.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <llama/decoder_backend.hpp>
#include <llama/generation.hpp>
#include <map>
#include <string_view>
#include <vector>

namespace cohort::llama {

inline constexpr std::size_t scripted_vocabulary = 50;

/// The token after a text of this length that ends with `last`.
inline kv::token_id after(kv::token_id last, std::uint32_t length) {
  return static_cast<kv::token_id>((static_cast<std::uint32_t>(last) * 31 + length * 17) %
                                   scripted_vocabulary);
}

/// Checks every call, and fails jobs and iterations as it is told.
class scripted_backend {
 public:
  explicit scripted_backend(const generator_options& o, std::size_t max_positions = 200)
      : most_{std::size_t{o.prefill_chunk} * o.prefill_ahead} {
    config_.vocabulary = scripted_vocabulary;
    config_.max_positions = max_positions;
  }

  [[nodiscard]] const llama_config& config() const { return config_; }
  [[nodiscard]] std::uint64_t column_bytes() const { return 8; }
  std::uint64_t allocate(std::uint32_t columns) {
    REQUIRE(columns >= 1);
    if (on_allocate) on_allocate();
    stored_[++last_] = {columns, 0};
    return last_;
  }
  std::uint32_t packed_columns(std::uint64_t storage) { return stored_.at(storage).columns; }
  void release(std::uint64_t storage) { REQUIRE(stored_.erase(storage) == 1); }
  void discard(std::uint64_t storage) { REQUIRE(stored_.erase(storage) == 1); }
  void execute(const kv::copy_plan& plan) {
    if (on_execute) on_execute();
    for (const kv::column_copy& c : plan.copies()) {
      if (c.kind == kv::copy_kind::enter) REQUIRE(stored_.contains(c.storage));
    }
  }

  void start_prefill(std::span<const prefill_piece> pieces) {
    REQUIRE(state_ == prefill_state::idle);
    REQUIRE_FALSE(pieces.empty());
    if (on_start) on_start();
    first_.clear();
    std::size_t tokens = 0;
    for (const prefill_piece& p : pieces) {
      packed& s = stored_.at(p.storage);
      REQUIRE(p.tokens.size() == s.columns);
      REQUIRE(p.first == s.computed);
      REQUIRE(p.count >= 1);
      s.computed += p.count;
      REQUIRE(p.is_last == (s.computed == s.columns));
      tokens += p.count;
      if (p.is_last) first_.push_back(after(p.tokens.back(), s.columns));
    }
    REQUIRE(tokens <= most_);
    ++jobs;
    computed += tokens;
    state_ = prefill_state::busy;
    left_ = patience;
  }
  prefill_state prefill() {
    if (state_ == prefill_state::busy && holds && holds()) return state_;
    if (state_ == prefill_state::busy && left_-- == 0) wait_for_prefill();
    return state_;
  }
  void wait_for_prefill() {
    if (state_ != prefill_state::busy) return;
    if (on_wait) on_wait();
    state_ = fails(jobs) ? prefill_state::failed : prefill_state::done;
  }
  row_result first(std::uint32_t i) { return says(first_.at(i), prompt_logits_, true); }
  void end_prefill() { state_ = prefill_state::idle; }

  bool iterate(const kv::decode_batch& batch, bool logits) {
    tokens_.assign(batch.size(), -1);
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      if (batch[i].live) tokens_[i] = after(batch[i].who.pending, batch[i].who.length);
    }
    wants_logits_ = logits;
    if (logits) ++with_logits;
    if (on_iterate) on_iterate();
    return ++iterations != broken_iteration;
  }
  row_result of_slot(std::uint32_t i) { return says(tokens_.at(i), logits_, wants_logits_); }
  [[nodiscard]] std::string_view error(device_work what) const {
    return what == device_work::iteration ? "an iteration broke" : "a prompt broke";
  }

  [[nodiscard]] bool is_computing() const { return state_ == prefill_state::busy; }
  /// Packed ones, of all storages.
  [[nodiscard]] std::uint64_t columns() const {
    std::uint64_t n = 0;
    for (const auto& [id, s] : stored_) n += s.columns;
    return n;
  }

  unsigned patience = 0;  // Looks at a job before it is done.
  std::function<bool(std::uint64_t job)> fails = [](std::uint64_t) { return false; };
  std::function<bool()> holds;       // Whether a job is not done, however often it is looked at.
  std::function<void()> on_wait;     // Before a job is done; may not throw.
  std::function<void()> on_iterate;  // In each iteration; these may throw.
  std::function<void()> on_allocate;
  std::function<void()> on_execute;
  std::function<void()> on_start;
  std::uint64_t jobs = 0;
  std::uint64_t computed = 0;  // Tokens of prompts.
  std::uint64_t iterations = 0;
  std::uint64_t broken_iteration = 0;  // 0: none.
  std::uint64_t with_logits = 0;
  kv::token_id poisoned = -1;  // Instead of this token comes what is not one.
  float poison = std::nanf("");

 private:
  struct packed {
    std::uint32_t columns;
    std::uint32_t computed;
  };
  row_result says(kv::token_id token, std::vector<float>& logits, bool wanted) {
    logits.assign(wanted ? scripted_vocabulary : 0, 0);
    if (wanted) logits[static_cast<std::size_t>(token)] = 9;
    const bool is_bad = token == poisoned;
    if (wanted && is_bad) logits.back() = poison;
    return {.best = scored_token{token, is_bad ? std::nanf("") : -0.5F}, .logits = logits};
  }

  llama_config config_;
  std::size_t most_;
  std::map<std::uint64_t, packed> stored_;
  std::uint64_t last_ = 0;
  prefill_state state_ = prefill_state::idle;
  unsigned left_ = 0;
  bool wants_logits_ = false;
  std::vector<kv::token_id> first_;
  std::vector<kv::token_id> tokens_;
  std::vector<float> prompt_logits_;
  std::vector<float> logits_;
};
static_assert(decoder_backend<scripted_backend>);

inline time_point no_time() { return {}; }

/// What a request that nothing ends early produces.
inline std::vector<kv::token_id> truth(const generation& g) {
  std::vector<kv::token_id> out{after(g.text.back(), g.prompt)};
  while (out.size() < g.max_new) {
    out.push_back(after(out.back(), g.prompt + static_cast<std::uint32_t>(out.size())));
  }
  return out;
}

}  // namespace cohort::llama
