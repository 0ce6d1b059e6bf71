// SPDX-License-Identifier: Apache-2.0
/// @file
/// A decoder on a device against the one on the host; for the emulation and for a GPU. A fixture
/// has `device_type` and `make(bytes)`, which gives a device with that much memory.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <llama/basic_generator.hpp>
#include <llama/cuda/backend.hpp>
#include <llama/generator.hpp>
#include <llama/llama.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::device::conformance {

inline time_point no_time() { return {}; }

inline llama_config small_config(test::random_source& random) {
  llama_config c;
  c.layers = 1 + random.below(3U);
  c.kv_heads = 1 + random.below(3U);
  c.heads = c.kv_heads * (1 + random.below(5U));
  c.head_size = 8 * (1 + random.below(4U));
  c.hidden = 8 * (1 + random.below(9U));
  c.ffn = 8 * (1 + random.below(12U));
  c.vocabulary = 100;
  c.max_positions = 400;
  c.tied = random.one_in(2);
  if (random.one_in(2)) c.stretch.type = rope_type::llama3;
  c.stretch.factor = 8;
  c.stretch.original_positions = 64;
  c.qkv_bias = c.hidden % 3 == 0;
  c.qk_norm = c.ffn % 3 == 0;
  return c;
}

/// Weights as the device holds them, so that only the arithmetic differs.
inline llama_weights rounded(llama_weights w, runtime::data_type t) {
  const auto round = [&](std::vector<float>& v) {
    for (float& x : v) {
      if (t == runtime::data_type::f16) {
        f16 h{};
        narrow(x, h);
        x = widen(h);
      } else if (t == runtime::data_type::bf16) {
        bf16 h{};
        narrow(x, h);
        x = widen(h);
      }
    }
  };
  round(w.embedding);
  round(w.head);
  for (layer_weights& l : w.layers) {
    round(l.qkv);
    round(l.out);
    round(l.gate_up);
    round(l.down);
  }
  return w;
}

/// |a − b| / |b|.
inline double distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += x * x;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}

/// Logits of the host for a text: of its last token.
inline std::vector<float> host_logits(const llama& model, const std::vector<kv::token_id>& text) {
  const llama_config& c = model.config();
  std::vector<float> memory(c.column_bytes() / sizeof(float) * text.size());
  std::vector<float> logits(c.vocabulary);
  std::vector<kv::column_run> runs(text.size());
  std::vector<token_row> rows;
  for (std::uint32_t p = 0; p < text.size(); ++p) {
    runs[p] = {0, p + 1};
    rows.push_back({.token = text[p],
                    .position = p,
                    .kv = packed_kv(c, memory.data(), text.size()),
                    .write = p,
                    .runs = {&runs[p], 1},
                    .logits = p + 1 == text.size() ? logits.data() : nullptr});
  }
  llama::scratch s;
  model.forward(rows, s);
  return logits;
}

using texts = std::vector<std::vector<kv::token_id>>;

inline texts draw_texts(test::random_source& random, std::size_t count, std::size_t vocabulary) {
  texts all(count);
  for (auto& text : all) {
    text.resize(1 + random.below(random.one_in(4) ? 120U : 12U));
    for (kv::token_id& x : text) x = static_cast<kv::token_id>(random.below(vocabulary));
  }
  return all;
}

/// Prompts in jobs of pieces, cut anywhere and mixed anyhow; or all of them whole in one job.
/// @returns The logits of each. Its storage is in `storages`.
template <class Backend>
std::vector<std::vector<float>> prefill_all(Backend& backend, const texts& all, bool in_pieces,
                                            test::random_source& random,
                                            std::vector<std::uint64_t>& storages) {
  storages.clear();
  for (const auto& text : all) {
    storages.push_back(backend.allocate(static_cast<std::uint32_t>(text.size())));
  }
  std::vector<std::vector<float>> logits(all.size());
  std::vector<std::uint32_t> done(all.size());
  std::vector<std::size_t> open(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) open[i] = i;
  while (!open.empty()) {
    std::vector<prefill_piece> job;
    std::vector<std::size_t> ends;
    while (!open.empty() && (job.empty() || !in_pieces || !random.one_in(3))) {
      const std::size_t at = in_pieces ? random.below(open.size()) : 0;
      const std::size_t i = open[at];
      const auto left = static_cast<std::uint32_t>(all[i].size()) - done[i];
      const std::uint32_t count = in_pieces ? 1 + random.below(left) : left;
      job.push_back({all[i], storages[i], done[i], count, count == left});
      done[i] += count;
      if (count < left) continue;
      ends.push_back(i);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
    }
    backend.start_prefill(job);
    backend.wait_for_prefill();
    REQUIRE(backend.prefill() == prefill_state::done);
    for (std::uint32_t n = 0; n < ends.size(); ++n) {
      const row_result r = backend.first(n);
      logits[ends[n]].assign(r.logits.begin(), r.logits.end());
      REQUIRE(r.best->token == std::ranges::max_element(r.logits) - r.logits.begin());
    }
    backend.end_prefill();
  }
  return logits;
}

/// A prompt's result does not depend on how it is cut, nor on what is between its pieces.
/// @param bound Of the distance; 0: bit for bit, where products do not depend on the rows.
template <class Fixture>
void check_pieces(std::uint64_t seed, runtime::data_type t, double bound) {
  CAPTURE(seed);
  test::random_source random{seed};
  const llama_config c = small_config(random);
  const llama_weights w = random_weights(c, seed);
  Fixture fixture;
  auto d = fixture.make(std::size_t{64} << 20U);
  using device_type = typename Fixture::device_type;
  const device_weights<device_type> weights{*d, w, t};
  const generator_options g{.slots = 1,
                            .columns = 4,
                            .kv_bytes = std::size_t{8} << 20U,
                            .staging_bytes = std::size_t{8} << 20U,
                            .prefill = {.max_rows = 4, .max_positions = 512}};
  device_backend<device_type> backend{*d, weights, g, {.prefill_chunk = 1 + random.below(100U)}};
  std::vector<std::uint64_t> storages;
  for (unsigned round = 0; round < 3; ++round) {
    const texts all = draw_texts(random, 1 + random.below(4U), c.vocabulary);
    const auto whole = prefill_all(backend, all, false, random, storages);
    for (const std::uint64_t s : storages) backend.release(s);
    const auto pieces = prefill_all(backend, all, true, random, storages);
    for (const std::uint64_t s : storages) backend.release(s);
    for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(distance(pieces[i], whole[i]) <= bound);
  }
}

/// Prefill and decode give the host's logits: prompts in pieces that cut them anywhere, then tokens
/// one by one in a ring that wraps.
template <class Fixture>
void check_logits(std::uint64_t seed, runtime::data_type t, double bound) {
  CAPTURE(seed);
  test::random_source random{seed};
  const llama_config c = small_config(random);
  const llama_weights w = random_weights(c, seed);
  const llama model{rounded(w, t)};
  Fixture fixture;
  auto d = fixture.make(std::size_t{64} << 20U);
  using device_type = typename Fixture::device_type;
  const device_weights<device_type> weights{*d, w, t};
  const generator_options g{.slots = 1 + random.below(5U),
                            .columns = 4,
                            .kv_bytes = std::size_t{8} << 20U,
                            .staging_bytes = std::size_t{8} << 20U,
                            .prefill = {.max_rows = 4, .max_waste = 0.5, .max_positions = 512}};
  device_backend<device_type> backend{*d, weights, g, {.prefill_chunk = 1 + random.below(100U)}};

  texts all = draw_texts(random, 1 + random.below(std::min(g.slots, 4U)), c.vocabulary);
  std::vector<std::uint64_t> storages;
  test::random_source cuts{seed};
  const auto prefilled = prefill_all(backend, all, seed % 2 == 0, cuts, storages);
  kv::decode_batch batch{{.slots = g.slots, .columns = g.columns}};
  kv::copy_plan plan;
  const auto check = [&](const row_result& r, const std::vector<kv::token_id>& text) {
    REQUIRE(distance(r.logits, host_logits(model, text)) < bound);
    const auto most = std::ranges::max_element(r.logits);
    REQUIRE(r.best->token == most - r.logits.begin());
  };
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    REQUIRE(distance(prefilled[i], host_logits(model, all[i])) < bound);
    const auto n = static_cast<std::uint32_t>(all[i].size());
    kv::prepared who{.id = request_id{i}, .storage = storages[i], .prompt = n};
    who.length = n;
    who.produced = 1;
    who.pending = static_cast<kv::token_id>(random.below(c.vocabulary));
    all[i].push_back(who.pending);
    batch.insert(i, who, plan);
    backend.execute(plan);
    plan.clear();
    backend.release(storages[i]);
  }
  for (unsigned step = 0; step < 12; ++step) {
    batch.step(plan);
    backend.execute(plan);
    plan.clear();
    REQUIRE(backend.iterate(batch, true));
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (!batch[i].live) continue;
      check(backend.of_slot(i), all[i]);
      const auto next = static_cast<kv::token_id>(random.below(c.vocabulary));
      batch.produce(i, next);
      all[i].push_back(next);
      if (random.one_in(15)) batch.remove(i);
    }
    if (batch.live() == 0) break;
  }
}

inline void draw(generation& g, test::random_source& random, std::uint64_t id) {
  g.id = request_id{id};
  g.text.resize(1 + random.below(random.one_in(5) ? 90U : 20U));
  for (kv::token_id& t : g.text) t = static_cast<kv::token_id>(random.below(100));
  g.max_new = 1 + random.below(24U);
  g.stop_tokens = {static_cast<kv::token_id>(random.below(100))};
  if (random.one_in(2)) {
    g.how = {.temperature = 0.8F, .top_k = random.below(30U), .top_p = 0.95F, .seed = id};
  }
}

/// How often it came to what is tested.
struct token_counts {
  std::uint64_t preemptions = 0;
  std::uint64_t prefix_hits = 0;
  std::uint64_t pieces = 0;  ///< Prompts longer than one.
};

/// Tokens in f32 are those of the host's solo run, whatever enters, leaves, is preempted and comes
/// back, however prompts are cut, and whether they were computed for another.
template <class Fixture>
void check_tokens(std::uint64_t seed, token_counts& counts) {
  CAPTURE(seed);
  test::random_source random{seed};
  llama_config c = small_config(random);
  c.max_positions = 150;
  const llama_weights w = random_weights(c, seed);
  const llama model{w};
  Fixture fixture;
  auto d = fixture.make(std::size_t{64} << 20U);
  using device_type = typename Fixture::device_type;
  const device_weights<device_type> weights{*d, w, runtime::data_type::f32};
  // Room for 224 columns in all: preemption happens by itself too.
  const generator_options o{.slots = 1 + random.below(6U),
                            .columns = 4,
                            .kv_bytes = 224 * c.column_bytes(),
                            .staging_bytes = std::size_t{8} << 20U,
                            .prefill_chunk = 1 + random.below(40U),
                            .prefill_ahead = 1 + random.below(4U),
                            .max_prefilling = 1 + random.below(8U),
                            .prefix_bytes = random.one_in(2) ? 0 : 200 * c.column_bytes(),
                            .prefill = {.max_rows = 3, .max_waste = 0.5, .max_positions = 512}};
  // Slices of the device cut the loop's pieces once more.
  device_backend<device_type> backend{*d, weights, o, {.prefill_chunk = 1 + random.below(80U)}};
  basic_generator g{backend, o};
  std::deque<generation> all;
  std::size_t next = 0;
  bool busy = true;
  while (busy || next < 16) {
    if (next < 16 && random.one_in(2)) {
      draw(all.emplace_back(), random, ++next);
      if (next > 1 && random.one_in(3)) all.back().text = all[random.below(next - 1)].text;
      if (all.back().text.size() > o.prefill_chunk) ++counts.pieces;
      all.back().priority = static_cast<std::uint8_t>(random.below(2U));
      REQUIRE_FALSE(g.submit(all.back()).has_value());
    }
    if (!all.empty() && random.one_in(40)) g.cancel(all[random.below(all.size())]);
    if (!all.empty() && random.one_in(6)) {
      generation& victim = all[random.below(all.size())];
      if (victim.state == kv::sequence_state::running) g.preempt(victim);
    }
    busy = g.turn(no_time);
  }
  CHECK(g.state().starved() == 0);
  for (const generation& q : all) {
    REQUIRE(q.finished.has_value());
    generator solo{model, {.slots = 1, .columns = 256}};
    generation truth;
    truth.text = q.text;
    truth.max_new = q.max_new;
    truth.stop_tokens = q.stop_tokens;
    truth.how = q.how;
    REQUIRE_FALSE(solo.submit(truth).has_value());
    while (solo.turn(no_time)) {
    }
    if (q.finished == kv::finish_reason::cancelled) {
      REQUIRE(q.produced.size() <= truth.produced.size());
      REQUIRE(std::equal(q.produced.begin(), q.produced.end(), truth.produced.begin()));
    } else {
      REQUIRE(q.produced == truth.produced);
    }
  }
  counts.preemptions += g.state().preemptions();
  counts.prefix_hits += g.prefix_hits();
}

}  // namespace cohort::llama::device::conformance
