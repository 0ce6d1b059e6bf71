// SPDX-License-Identifier: Apache-2.0
// A real decoder on real memory: what a sequence says must not depend on who else is in the batch.
#include <doctest/doctest.h>
#include <cohort/kv/batch/decode_batch.hpp>

#include <cohort/kv/decode_scheduler.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>
#include <support/tiny_llama.hpp>

namespace cohort::kv::decoder_test {
namespace {
using test::attention_mode;
using test::kv_memory;
using test::llama_shape;
using test::random_source;
using test::tiny_llama;

struct query {
  std::vector<token_id> prompt;
  std::uint32_t max_new = 1;
  token_id eos = 0;
};

template <class Real>
struct answer {
  std::vector<token_id> tokens;
  std::vector<std::vector<Real>> logits;  ///< Of each token.
};

template <class Real>
void say(answer<Real>& a, std::vector<Real> logits) {
  a.tokens.push_back(tiny_llama<Real>::greedy(logits));
  a.logits.push_back(std::move(logits));
}

template <class Real>
bool is_over(const query& q, const answer<Real>& a) {
  return a.tokens.size() >= q.max_new || a.tokens.back() == q.eos;
}

/// A prompt into packed columns; its first token.
template <class Real>
void prefill(const tiny_llama<Real>& model, const query& q, kv_memory<Real>& memory,
             std::uint64_t storage, answer<Real>& a) {
  std::vector<Real> logits;
  for (std::uint32_t p = 0; p < q.prompt.size(); ++p) {
    logits = model.forward(q.prompt[p], p, memory.view(storage, p + 1));
  }
  say(a, std::move(logits));
}

template <class Real>
answer<Real> alone(const tiny_llama<Real>& model, const query& q) {
  kv_memory<Real> memory{model.shape(), 1};
  const std::uint64_t storage =
      memory.allocate(static_cast<std::uint32_t>(q.prompt.size()) + q.max_new);
  answer<Real> a;
  prefill(model, q, memory, storage, a);
  while (!is_over(q, a)) {
    const auto length = static_cast<std::uint32_t>(q.prompt.size() + a.tokens.size());
    say(a, model.forward(a.tokens.back(), length - 1, memory.view(storage, length)));
  }
  return a;
}

std::vector<query> draw_queries(random_source& random, const llama_shape& s) {
  std::vector<query> all(4 + random.below(10U));
  for (query& q : all) {
    q.prompt.resize(1 + random.below(29U));
    for (token_id& t : q.prompt) t = static_cast<token_id>(random.below(s.vocabulary));
    q.max_new = 1 + random.below(24U);
    q.eos = static_cast<token_id>(random.below(s.vocabulary));
  }
  return all;
}

struct fuzz_options {
  bool shaping = false;
  attention_mode attention{};
  double poison = std::numeric_limits<double>::quiet_NaN();  ///< 0: none.
  bool fill_infinite = false;  ///< What is not own holds −inf instead.
};

struct fuzz_counts {
  int queries = 0;
  int at_prefill = 0;
  int preempted = 0;
  int wrong_tokens = 0;
  int other_bits = 0;
  double worst = 0;  ///< Largest relative difference of a logit.
};

/// One random schedule: enter by embedding or shaping, preempt, restore, scale, wipe; every query's
/// answer against the one it gives alone.
template <class Real>
void fuzz(std::uint64_t seed, const fuzz_options& o, fuzz_counts& counts) {
  random_source random{seed};
  const llama_shape shape{.rope = random.one_in(2)};
  const tiny_llama<Real> model{shape, seed};
  const std::vector<query> queries = draw_queries(random, shape);
  decode_batch batch{{.slots = 1 + random.below(5U), .columns = 4}};
  if (!o.shaping && random.one_in(3)) {
    batch = decode_batch{{.slots = batch.size(), .columns = 4, .layout = column_layout::line}};
  }
  kv_memory<Real> memory{shape, 4};
  if (o.poison != 0) memory.garbage = static_cast<Real>(o.poison);
  copy_plan plan;
  const auto run = [&] {
    memory.run(plan);
    plan.clear();
  };

  std::vector<answer<Real>> answers(queries.size());
  std::vector<bool> ended(queries.size());
  std::deque<prepared> waiting;
  std::deque<std::uint64_t> fresh;
  for (std::uint64_t i = 0; i < queries.size(); ++i) fresh.push_back(i);
  const auto end = [&](std::uint64_t i) {
    REQUIRE_FALSE(ended[i]);
    ended[i] = true;
  };
  const auto free_slot = [&]() -> std::optional<std::uint32_t> {
    const std::uint32_t s = batch.free_slot();
    return s < batch.size() ? std::optional{s} : std::nullopt;
  };

  for (;;) {
    // Some are prefilled, on the side.
    while (!fresh.empty() && (!o.shaping || random.one_in(2)) && random.one_in(2)) {
      const std::uint64_t i = fresh.front();
      fresh.pop_front();
      const auto n = static_cast<std::uint32_t>(queries[i].prompt.size());
      const std::uint64_t storage = memory.allocate(n);
      prefill(model, queries[i], memory, storage, answers[i]);
      if (is_over(queries[i], answers[i])) {
        ++counts.at_prefill;
        memory.release(storage);
        end(i);
        continue;
      }
      waiting.push_back({.id = request_id{i},
                         .storage = storage,
                         .prompt = n,
                         .length = n,
                         .produced = 1,
                         .pending = answers[i].tokens.back()});
    }
    if (random.one_in(20)) {
      const std::uint32_t rows = 1 + random.below(5U);
      if (rows >= batch.live()) batch.resize(rows, plan);
      run();
    }
    for (std::uint32_t s = 0; s < batch.size(); ++s) {
      if (!batch[s].live || random.below(100) >= 8) continue;
      const std::uint64_t storage = memory.allocate(batch[s].who.length);
      waiting.push_back(batch.preempt(s, storage, kv_place::host, plan));
      ++counts.preempted;
      run();
    }
    for (auto s = free_slot(); s && !waiting.empty() && !random.one_in(8); s = free_slot()) {
      const auto which = static_cast<std::ptrdiff_t>(random.below(waiting.size()));
      const prepared p = waiting[static_cast<std::size_t>(which)];
      waiting.erase(waiting.begin() + which);
      batch.insert(*s, p, plan);
      run();
      memory.release(p.storage);
    }
    std::vector<shaped_entry> entries;
    if (o.shaping) {
      for (std::uint32_t s = 0; s < batch.size() && !fresh.empty(); ++s) {
        if (!batch.is_free(s) || random.one_in(2)) continue;
        const std::uint64_t i = fresh.front();
        fresh.pop_front();
        entries.push_back({s,
                           {.id = request_id{i},
                            .prompt = static_cast<std::uint32_t>(queries[i].prompt.size())}});
      }
    }
    if (batch.live() == 0 && entries.empty()) {
      if (fresh.empty() && waiting.empty()) break;
      continue;
    }

    const appended_columns block = batch.shape(entries, plan);
    run();
    if (o.poison != 0) memory.poison(batch, static_cast<Real>(o.poison));
    if (o.fill_infinite) memory.poison(batch, -std::numeric_limits<Real>::infinity());
    for (std::uint32_t s = 0; s < batch.size(); ++s) {
      if (!batch[s].live) continue;
      const std::uint64_t i = batch[s].who.id.value();
      test::kv_view<Real> view = memory.view(batch, s);
      std::vector<Real> logits;
      if (batch[s].who.produced == 0) {
        const std::vector<std::uint32_t> own = view.columns;
        for (std::uint32_t p = 0; p < own.size(); ++p) {
          view.columns.assign(own.begin(), own.begin() + p + 1);
          logits = model.forward(queries[i].prompt[p], p, view);
        }
      } else {
        std::size_t position = batch[s].who.length - 1;
        if (o.attention.column_positions) position = view.window.size() - 1;
        logits = model.forward(batch[s].who.pending, position, view, o.attention);
      }
      say(answers[i], std::move(logits));
      batch.produce(s, answers[i].tokens.back());
      if (!is_over(queries[i], answers[i])) continue;
      batch.remove(s);
      end(i);
      if (random.one_in(2)) memory.wipe(s, 0);
    }
    REQUIRE(block.count >= 1);
  }

  REQUIRE(memory.stored() == 0);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    REQUIRE(ended[i]);
    ++counts.queries;
    const answer<Real> truth = alone(model, queries[i]);
    if (answers[i].tokens != truth.tokens) {
      ++counts.wrong_tokens;
      continue;
    }
    bool same = true;
    for (std::size_t t = 0; t < truth.logits.size(); ++t) {
      same = same && std::memcmp(truth.logits[t].data(), answers[i].logits[t].data(),
                                 truth.logits[t].size() * sizeof(Real)) == 0;
      double scale = 0;
      double difference = 0;
      for (std::size_t c = 0; c < truth.logits[t].size(); ++c) {
        scale = std::max(scale, std::abs(static_cast<double>(truth.logits[t][c])));
        difference = std::max(difference, std::abs(static_cast<double>(truth.logits[t][c]) -
                                                   static_cast<double>(answers[i].logits[t][c])));
      }
      counts.worst = std::max(counts.worst, difference / scale);
    }
    if (!same) ++counts.other_bits;
  }
}

template <class Real>
fuzz_counts fuzz_all(const fuzz_options& o, std::uint64_t seeds) {
  fuzz_counts counts;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    fuzz<Real>(seed, o, counts);
  }
  return counts;
}

TEST_CASE("embedded, every query's float32 logits are those of its solo run, bit for bit") {
  const fuzz_counts c = fuzz_all<float>({}, test::seeds(120));
  CHECK(c.queries > test::at_least(900));
  CHECK(c.at_prefill > test::at_least(30));
  CHECK(c.preempted > test::at_least(200));
  CHECK(c.wrong_tokens == 0);
  CHECK(c.other_bits == 0);
}

TEST_CASE("with shaping mixed in, too, and in float64") {
  for (const bool shaping : {false, true}) {
    const fuzz_counts f = fuzz_all<float>({.shaping = shaping}, test::seeds(60));
    CHECK(f.wrong_tokens == 0);
    CHECK(f.other_bits == 0);
    const fuzz_counts d = fuzz_all<double>({.shaping = shaping}, test::seeds(60));
    CHECK(d.wrong_tokens == 0);
    CHECK(d.worst == 0);
  }
}

TEST_CASE("a dense masked kernel may read garbage if it is finite") {
  const fuzz_counts c = fuzz_all<double>(
      {.shaping = true, .attention = {.dense = true}, .poison = 1e4}, test::seeds(60));
  CHECK(c.wrong_tokens == 0);
  CHECK(c.worst < 1e-12);
}

TEST_CASE("a dense masked kernel cannot read NaN: zero times NaN is NaN") {
  CHECK(fuzz_all<double>({.attention = {.dense = true}}, 20).wrong_tokens > 20);
}

TEST_CASE("trap: −inf in the keys and values instead of on the scores") {
  const fuzz_counts c = fuzz_all<double>(
      {.attention = {.dense = true, .masked = false}, .poison = 0, .fill_infinite = true}, 30);
  MESSAGE("wrong with an infinite fill: " << c.wrong_tokens << " of " << c.queries);
  CHECK(c.wrong_tokens > c.queries / 4);
}

TEST_CASE("trap: positions by column") {
  for (const bool shaping : {false, true}) {
    const fuzz_counts c = fuzz_all<double>(
        {.shaping = shaping, .attention = {.column_positions = true}, .poison = 0}, 30);
    MESSAGE("wrong with positions by column: " << c.wrong_tokens << " of " << c.queries);
    CHECK(c.wrong_tokens > c.queries / 5);
  }
}

TEST_CASE("trap: no mask on a slot that was used before") {
  const fuzz_counts c =
      fuzz_all<double>({.attention = {.dense = true, .masked = false}, .poison = 0}, 30);
  MESSAGE("wrong without a mask: " << c.wrong_tokens << " of " << c.queries);
  CHECK(c.wrong_tokens > c.queries / 5);
}

TEST_CASE("trap: sums that begin at the window's first column differ in their last bits") {
  const fuzz_counts c = fuzz_all<float>({.attention = {.by_window = true}}, 30);
  MESSAGE("other bits with sums by window: " << c.other_bits << " of " << c.queries);
  CHECK(c.other_bits > c.queries / 5);
}

/// A sequence with its text, under the scheduler.
template <class Real>
struct speaker : sequence {
  query what;
  answer<Real> said;
  int ends = 0;
  finish_reason why{};
};

struct memory_sink {
  kv_memory<float>& memory;
  void execute(const copy_plan& plan) { memory.run(plan); }
  std::uint64_t allocate(sequence&, std::uint32_t columns) { return memory.allocate(columns); }
  void release(std::uint64_t storage) { memory.release(storage); }
  void finish(sequence& s, finish_reason why) {
    auto& speaking = static_cast<speaker<float>&>(s);
    ++speaking.ends;
    speaking.why = why;
  }
};

TEST_CASE("under the scheduler and a tight budget: same bits, one end each, NaN all around") {
  int preempted = 0;
  int cut = 0;
  for (std::uint64_t seed = 1; seed <= test::seeds(60); ++seed) {
    CAPTURE(seed);
    random_source random{seed};
    const llama_shape shape{.rope = random.one_in(2)};
    const tiny_llama<float> model{shape, seed};
    kv_memory<float> memory{shape, 4};
    memory.garbage = std::numeric_limits<float>::quiet_NaN();
    memory_sink sink{memory};
    decode_scheduler<best_fit> scheduler{
        {.batch = {.slots = 1 + random.below(4U), .columns = 4},
         .max_slots = 5,
         .prefill = {.max_rows = 3, .max_waste = 0.5},
         .budget = {.high_bytes = 120, .low_bytes = 90, .bytes_per_column = 1}}};
    std::deque<speaker<float>> all;
    for (const query& q : draw_queries(random, shape)) {
      speaker<float>& s = all.emplace_back();
      s.what = q;
      s.id = request_id{all.size() - 1};
      s.prompt = static_cast<std::uint32_t>(q.prompt.size());
      s.max_new = q.max_new;
      s.priority = static_cast<std::uint8_t>(random.below(2U));
      REQUIRE_FALSE(scheduler.submit(s).has_value());
    }
    while (!scheduler.empty()) {
      if (random.one_in(3)) {
        const auto group = scheduler.next_prefill();
        for (sequence* p : std::vector<sequence*>(group.begin(), group.end())) {
          auto& s = static_cast<speaker<float>&>(*p);
          const std::uint64_t storage = memory.allocate(s.prompt);
          prefill(model, s.what, memory, storage, s.said);
          scheduler.on_prefilled(s, storage, s.said.tokens.back(),
                                 s.said.tokens.back() == s.what.eos, sink);
        }
      }
      if (random.one_in(12)) scheduler.cancel(all[random.below(all.size())], sink);
      if (!scheduler.begin(time_point{}, sink)) continue;
      memory.poison(scheduler.batch(), std::numeric_limits<float>::quiet_NaN());
      for (std::uint32_t i = 0; i < scheduler.batch().size(); ++i) {
        const decode_slot& slot = scheduler.batch()[i];
        if (!slot.live) continue;
        auto& s = static_cast<speaker<float>&>(scheduler.in_slot(i));
        say(s.said, model.forward(slot.who.pending, slot.who.length - 1,
                                  memory.view(scheduler.batch(), i)));
        scheduler.on_token(i, s.said.tokens.back(), s.said.tokens.back() == s.what.eos, sink);
      }
    }
    REQUIRE(scheduler.starved() == 0);
    REQUIRE(scheduler.peak_bytes() <= 120);
    REQUIRE(memory.stored() == 0);
    preempted += static_cast<int>(scheduler.preemptions());
    for (const speaker<float>& s : all) {
      REQUIRE(s.ends == 1);
      const answer<float> truth = alone(model, s.what);
      if (s.why == finish_reason::cancelled) ++cut;
      REQUIRE(s.said.tokens.size() <= truth.tokens.size());
      if (s.why != finish_reason::cancelled) {
        REQUIRE(s.said.tokens.size() == truth.tokens.size());
        REQUIRE((s.why == finish_reason::stop) == (truth.tokens.back() == s.what.eos));
      }
      for (std::size_t t = 0; t < s.said.tokens.size(); ++t) {
        REQUIRE(s.said.tokens[t] == truth.tokens[t]);
        REQUIRE(std::memcmp(s.said.logits[t].data(), truth.logits[t].data(),
                            truth.logits[t].size() * sizeof(float)) == 0);
      }
    }
  }
  CHECK(preempted > test::at_least(30));
  CHECK(cut > test::at_least(30));
}

}  // namespace
}  // namespace cohort::kv::decoder_test
