// SPDX-License-Identifier: Apache-2.0
// The loop over a decoder that computes nothing: what it asks, and what becomes of failures.
#include <llm/basic_generator.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::llm {
namespace {

constexpr std::size_t vocabulary = 50;

/// The token after a text of this length that ends with `last`.
kv::token_id after(kv::token_id last, std::uint32_t length) {
  return static_cast<kv::token_id>((static_cast<std::uint32_t>(last) * 31 + length * 17) %
                                   vocabulary);
}

/// Checks every call, and fails jobs and iterations as it is told.
class scripted_backend {
 public:
  explicit scripted_backend(const generator_options& o)
      : most_{std::size_t{o.prefill_chunk} * o.prefill_ahead} {
    config_.vocabulary = vocabulary;
    config_.max_positions = 200;
  }

  [[nodiscard]] const llama_config& config() const { return config_; }
  [[nodiscard]] std::uint64_t column_bytes() const { return 8; }
  std::uint64_t allocate(std::uint32_t columns) {
    REQUIRE(columns >= 1);
    stored_[++last_] = {columns, 0};
    return last_;
  }
  std::uint32_t packed_columns(std::uint64_t storage) { return stored_.at(storage).columns; }
  void release(std::uint64_t storage) { REQUIRE(stored_.erase(storage) == 1); }
  void discard(std::uint64_t storage) { REQUIRE(stored_.erase(storage) == 1); }
  void execute(const kv::copy_plan& plan) {
    for (const kv::column_copy& c : plan.copies()) {
      if (c.kind == kv::copy_kind::enter) REQUIRE(stored_.contains(c.storage));
    }
  }

  void start_prefill(std::span<const prefill_piece> pieces) {
    REQUIRE(state_ == prefill_state::idle);
    REQUIRE_FALSE(pieces.empty());
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
    state_ = prefill_state::busy;
    left_ = patience;
  }
  prefill_state prefill() {
    if (state_ == prefill_state::busy && left_-- == 0) wait_for_prefill();
    return state_;
  }
  void wait_for_prefill() {
    if (state_ != prefill_state::busy) return;
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
    return ++iterations != broken_iteration;
  }
  row_result of_slot(std::uint32_t i) { return says(tokens_.at(i), logits_, wants_logits_); }

  /// Packed ones, of all storages.
  [[nodiscard]] std::uint64_t columns() const {
    std::uint64_t n = 0;
    for (const auto& [id, s] : stored_) n += s.columns;
    return n;
  }

  unsigned patience = 0;  // Looks at a job before it is done.
  std::function<bool(std::uint64_t job)> fails = [](std::uint64_t) { return false; };
  std::uint64_t jobs = 0;
  std::uint64_t iterations = 0;
  std::uint64_t broken_iteration = 0;  // 0: none.
  std::uint64_t with_logits = 0;

 private:
  struct packed {
    std::uint32_t columns;
    std::uint32_t computed;
  };
  row_result says(kv::token_id token, std::vector<float>& logits, bool wanted) {
    logits.assign(wanted ? vocabulary : 0, 0);
    if (wanted) logits[static_cast<std::size_t>(token)] = 9;
    return {.best = scored_token{token, -0.5F}, .logits = logits};
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

time_point no_time() { return {}; }

std::vector<kv::token_id> truth(const generation& g) {
  std::vector<kv::token_id> out{after(g.text.back(), g.prompt)};
  while (out.size() < g.max_new) {
    out.push_back(after(out.back(), g.prompt + static_cast<std::uint32_t>(out.size())));
  }
  return out;
}

TEST_CASE("whatever fails and is cancelled, others have their tokens and no storage is lost") {
  std::size_t failed = 0;
  std::uint64_t hits = 0;
  std::uint64_t preemptions = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const generator_options o{.slots = 1 + random.below(6U),
                              .columns = 4,
                              .kv_bytes = 224 * 8,
                              .staging_bytes = 2000 * 8,
                              .prefill_chunk = 1 + random.below(40U),
                              .prefill_ahead = 1 + random.below(4U),
                              .max_prefilling = 1 + random.below(8U),
                              .prefix_bytes = random.one_in(2) ? 0U : 100U * 8,
                              .prefill = {.max_rows = 3, .max_waste = 0.5}};
    scripted_backend backend{o};
    backend.patience = random.below(4U);
    if (random.one_in(2)) {
      backend.fails = [seed](std::uint64_t job) { return job * 31 % 7 == seed % 7; };
    }
    basic_generator g{backend, o};
    std::deque<generation> all;
    bool busy = true;
    while (busy || all.size() < 40) {
      if (all.size() < 40 && random.one_in(2)) {
        generation& q = all.emplace_back();
        q.id = request_id{all.size()};
        q.text.resize(1 + random.below(random.one_in(5) ? 90U : 20U));
        for (kv::token_id& t : q.text) t = static_cast<kv::token_id>(random.below(vocabulary));
        if (all.size() > 1 && random.one_in(3)) q.text = all[random.below(all.size() - 1)].text;
        q.max_new = 1 + random.below(24U);
        q.how.logprobs = random.below(2U);  // Needs logits; the tokens are the same.
        REQUIRE_FALSE(g.submit(q).has_value());
      }
      if (!all.empty() && random.one_in(40)) g.cancel(all[random.below(all.size())]);
      if (!all.empty() && random.one_in(10)) {
        generation& victim = all[random.below(all.size())];
        if (victim.state == kv::sequence_state::running) g.preempt(victim);
      }
      busy = g.turn(no_time);
    }
    CHECK(g.state().starved() == 0);
    for (const generation& q : all) {
      REQUIRE(q.finished.has_value());
      REQUIRE(q.times.size() == q.produced.size());
      const std::vector<kv::token_id> whole = truth(q);
      if (q.finished == kv::finish_reason::error) {
        ++failed;
        REQUIRE(q.produced.empty());
      } else if (q.finished == kv::finish_reason::cancelled) {
        REQUIRE(std::equal(q.produced.begin(), q.produced.end(), whole.begin()));
      } else {
        REQUIRE(q.finished == kv::finish_reason::length);
        REQUIRE(q.produced == whole);
      }
    }
    REQUIRE(backend.columns() * backend.column_bytes() <= o.prefix_bytes);
    hits += g.prefix_hits();
    preemptions += g.state().preemptions();
  }
  CHECK(failed > 0);
  CHECK(hits > 0);
  CHECK(preemptions > 0);
}

TEST_CASE("equal prompts are computed again by one who waited, if the first one's prefill fails") {
  const generator_options o{.slots = 4, .columns = 16, .prefill_chunk = 4, .prefix_bytes = 0};
  scripted_backend backend{o};
  backend.fails = [](std::uint64_t job) { return job == 1; };
  basic_generator g{backend, o};
  std::deque<generation> all(3);
  for (generation& q : all) {
    q.text.assign(10, 3);
    q.max_new = 4;
    REQUIRE_FALSE(g.submit(q).has_value());
  }
  while (g.turn(no_time)) {
  }
  CHECK(all[0].finished == kv::finish_reason::error);
  CHECK(all[1].produced == truth(all[1]));
  CHECK(all[2].produced == truth(all[2]));
  CHECK(backend.jobs == 2);
  CHECK(g.prefilled_tokens() == 20);
  CHECK(backend.columns() == 0);
}

TEST_CASE("an iteration that fails ends the loop with an exception") {
  const generator_options o{.slots = 2, .columns = 16};
  scripted_backend backend{o};
  backend.broken_iteration = 3;
  basic_generator g{backend, o};
  generation q;
  q.text = {1, 2};
  q.max_new = 9;
  REQUIRE_FALSE(g.submit(q).has_value());
  CHECK_THROWS_AS(
      [&] {
        while (g.turn(no_time)) {
        }
      }(),
      config_error);
  CHECK(q.produced.size() == 3);  // Of its prompt, and of two iterations.
}

TEST_CASE("logits of an iteration are asked for only if a row needs more than the best token") {
  const generator_options o{.slots = 2, .columns = 16};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  generation plain;
  plain.text = {1, 2};
  plain.max_new = 5;
  float logprob = 0;
  plain.on_token = [&](generation&, const sampled& s) {
    logprob = s.chosen.logprob;
    return false;
  };
  REQUIRE_FALSE(g.submit(plain).has_value());
  while (g.turn(no_time)) {
  }
  CHECK(backend.iterations == 4);
  CHECK(backend.with_logits == 0);
  CHECK(logprob == -0.5F);  // The backend's, not drawn from logits.
  generation drawn;
  drawn.text = {1, 3};
  drawn.max_new = 3;
  drawn.how.temperature = 0.7F;
  REQUIRE_FALSE(g.submit(drawn).has_value());
  while (g.turn(no_time)) {
  }
  CHECK(backend.with_logits == 2);
}

}  // namespace
}  // namespace cohort::llm
