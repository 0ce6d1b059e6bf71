// SPDX-License-Identifier: Apache-2.0
#include <llama/generator.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::generator_test {
namespace {

time_point no_time() { return {}; }

llama tiny(std::uint64_t seed) {
  llama_config c = named_config("tiny");
  c.max_positions = 200;
  return llama{random_weights(c, seed)};
}

void draw(generation& g, test::random_source& random, std::uint64_t id) {
  g.id = request_id{id};
  g.text.resize(1 + random.below(random.one_in(5) ? 90U : 20U));
  for (kv::token_id& t : g.text) t = static_cast<kv::token_id>(random.below(256));
  g.max_new = 1 + random.below(24U);
  g.stop_tokens = {static_cast<kv::token_id>(random.below(256)),
                   static_cast<kv::token_id>(random.below(256))};
  if (random.one_in(2)) {
    g.how = {.temperature = 0.8F, .top_k = random.below(30U), .top_p = 0.95F, .seed = id};
  }
}

/// The same request with nobody beside it.
std::vector<kv::token_id> alone(const llama& model, const generation& like) {
  generator solo{model, {.slots = 1, .columns = 256}};
  generation g;
  g.text = like.text;
  g.max_new = like.max_new;
  g.stop_tokens = like.stop_tokens;
  g.how = like.how;
  REQUIRE_FALSE(solo.submit(g).has_value());
  while (solo.turn(no_time)) {
  }
  return g.produced;
}

TEST_CASE("tokens are those of the solo run, greedy or drawn, whatever shares the batch") {
  for (std::uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const llama model = tiny(seed);
    // Room for 224 columns in all: preemption happens.
    generator g{model,
                {.slots = 1 + random.below(6U),
                 .columns = 4,
                 .kv_bytes = 224 * model.config().column_bytes(),
                 .staging_bytes = 8U << 20U,
                 .prefill_chunk = 1 + random.below(40U),
                 .prefill_ahead = 1 + random.below(4U),
                 .max_prefilling = 1 + random.below(8U),
                 .prefix_bytes = random.one_in(2) ? 0 : 100 * model.config().column_bytes(),
                 .prefill = {.max_rows = 3, .max_waste = 0.5}}};
    std::deque<generation> all;
    std::size_t cancelled = 0;
    std::size_t next = 0;
    bool busy = true;
    while (busy || next < 30) {
      if (next < 30 && random.one_in(2)) {
        draw(all.emplace_back(), random, ++next);
        // Some prompts come again, to be drawn otherwise.
        if (next > 1 && random.one_in(3)) all.back().text = all[random.below(next - 1)].text;
        all.back().priority = static_cast<std::uint8_t>(random.below(2U));
        REQUIRE_FALSE(g.submit(all.back()).has_value());
      }
      if (!all.empty() && random.one_in(40)) g.cancel(all[random.below(all.size())]);
      busy = g.turn(no_time);
    }
    CHECK(g.state().starved() == 0);
    CHECK(g.state().peak_bytes() <= 224 * model.config().column_bytes());
    for (const generation& q : all) {
      REQUIRE(q.finished.has_value());
      const std::vector<kv::token_id> truth = alone(model, q);
      if (q.finished == kv::finish_reason::cancelled) {
        ++cancelled;
        REQUIRE(q.produced.size() <= truth.size());
        REQUIRE(std::equal(q.produced.begin(), q.produced.end(), truth.begin()));
      } else {
        REQUIRE(q.produced == truth);
      }
      REQUIRE(q.times.size() == q.produced.size());
    }
    CHECK(cancelled < all.size() / 2);
  }
}

TEST_CASE("what is preempted for want of room says the same after it came back") {
  // No stop tokens: when there is no room does not depend on what the model says.
  const llama model = tiny(8);
  generator g{model, {.slots = 4, .columns = 4, .kv_bytes = 224 * model.config().column_bytes()}};
  std::deque<generation> all(6);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].id = request_id{i};
    all[i].text.assign(30, static_cast<kv::token_id>(i));
    all[i].max_new = 50;
    if (i % 2 == 1) all[i].how = {.temperature = 0.8F, .top_p = 0.95F, .seed = i};
    REQUIRE_FALSE(g.submit(all[i]).has_value());
  }
  while (g.turn(no_time)) {
  }
  CHECK(g.state().preemptions() > 0);
  CHECK(g.state().starved() == 0);
  CHECK(g.state().peak_bytes() <= 224 * model.config().column_bytes());
  for (const generation& q : all) {
    CHECK(q.finished == kv::finish_reason::length);
    REQUIRE(q.produced == alone(model, q));
  }
}

TEST_CASE("memory that is free in pieces is enough, whatever lengths come and go") {
  const llama model = tiny(9);
  const std::uint64_t column = model.config().column_bytes();
  for (std::uint64_t seed = 1; seed <= test::seeds(600); ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    generator g{model,
                {.slots = 6,
                 .columns = 4,
                 .kv_bytes = 300 * column,
                 .staging_bytes = 300 * column,
                 .prefix_bytes = 300 * column}};
    std::deque<generation> all(60);
    std::size_t next = 0;
    for (bool is_busy = true; is_busy || next < all.size();) {
      for (std::uint32_t n = random.below(12U); n > 0 && next < all.size(); --n, ++next) {
        generation& q = all[next];
        q.id = request_id{next};
        q.text.resize(1 + random.below(random.one_in(2) ? 95U : 30U));
        for (kv::token_id& t : q.text) t = static_cast<kv::token_id>(random.below(256));
        q.max_new = 1 + random.below(60U);
        if (g.submit(q).has_value()) q.finished = kv::finish_reason::rejected;
      }
      if (random.one_in(5) && next > 0) g.cancel(all[random.below(next)]);
      is_busy = g.turn(no_time);
    }
    for (const generation& q : all) {
      REQUIRE(q.finished.has_value());
      CHECK(*q.finished != kv::finish_reason::error);
    }
  }
}

TEST_CASE("equal prompts are computed once: at the same time, and later if they are kept") {
  const llama model = tiny(5);
  for (const bool keeps : {true, false}) {
    CAPTURE(keeps);
    generator g{model,
                {.slots = 4,
                 .columns = 16,
                 .prefix_bytes = keeps ? 70 * model.config().column_bytes() : 0}};
    std::deque<generation> all(7);
    const auto submit = [&](std::size_t i, kv::token_id first) {
      all[i].id = request_id{i};
      all[i].text.assign(30, 9);
      all[i].text[0] = first;
      all[i].max_new = 6;
      if (i % 2 == 1) all[i].how = {.temperature = 0.9F, .seed = i};
      REQUIRE_FALSE(g.submit(all[i]).has_value());
    };
    const auto drain = [&] {
      while (g.turn(no_time)) {
      }
    };
    for (std::size_t i = 0; i < 3; ++i) submit(i, 1);
    drain();
    CHECK(g.prefix_hits() == 2);
    CHECK(g.prefilled_tokens() == 30);
    submit(3, 1);
    drain();
    CHECK(g.prefilled_tokens() == (keeps ? 30 : 60));
    // Two more prompts: there is room for two of 30 columns, with what belongs to them, and the
    // oldest of three goes.
    submit(4, 2);
    drain();
    submit(5, 3);
    drain();
    CHECK(g.prefilled_tokens() == (keeps ? 90 : 120));
    submit(6, 1);
    drain();
    CHECK(g.prefilled_tokens() == (keeps ? 120 : 150));
    for (const generation& q : all) REQUIRE(q.produced == alone(model, q));
  }
}

TEST_CASE("a short prompt is not stuck behind a long one") {
  const llama model = tiny(6);
  for (const bool in_turn : {true, false}) {
    CAPTURE(in_turn);
    generator g{
        model,
        {.slots = 2, .columns = 16, .prefill_chunk = 8, .prefill_ahead = in_turn ? 1U : 100U}};
    std::deque<generation> two(2);
    two[0].text.assign(190, 4);
    two[1].text.assign(5, 3);
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < 2; ++i) {
      two[i].max_new = 2;
      two[i].on_token = [&order, i](generation&, const sampled&) {
        order.push_back(i);
        return false;
      };
    }
    REQUIRE_FALSE(g.submit(two[0]).has_value());
    g.turn(no_time);  // Its first pieces are under way.
    REQUIRE_FALSE(g.submit(two[1]).has_value());
    while (g.turn(no_time)) {
    }
    // All pieces at once: the long one is done before the other comes.
    CHECK(order.front() == (in_turn ? 1U : 0U));
    for (const generation& q : two) REQUIRE(q.produced == alone(model, q));
  }
}

TEST_CASE("on_token sees every token of the text and may end it") {
  const llama model = tiny(3);
  generator g{model, {.slots = 2, .columns = 16}};
  generation q;
  q.text = {1, 2, 3};
  q.max_new = 20;
  q.how.logprobs = 2;
  std::vector<kv::token_id> seen;
  q.on_token = [&](generation&, const sampled& s) {
    CHECK(s.top.size() == 2);
    CHECK(s.top[0].token == s.chosen.token);  // Greedy.
    seen.push_back(s.chosen.token);
    return seen.size() == 5;
  };
  REQUIRE_FALSE(g.submit(q).has_value());
  while (g.turn(no_time)) {
  }
  CHECK(q.finished == kv::finish_reason::stop);
  CHECK(seen == q.produced);
  CHECK(seen.size() == 5);
}

TEST_CASE("a first token that would be late is not computed, by what prompts took before") {
  const llama model = tiny(7);
  time_point now{};
  std::int64_t step_ms = 0;
  const auto clock = [&] { return now += std::chrono::milliseconds{step_ms}; };
  generator g{model,
              {.slots = 2,
               .columns = 16,
               .first_token = std::chrono::milliseconds{100},
               .between_tokens = std::chrono::seconds{10}}};
  const auto run = [&](generation& q, std::size_t tokens) {
    q.text.assign(tokens, static_cast<kv::token_id>(tokens));
    q.max_new = 3;
    REQUIRE_FALSE(g.submit(q, now).has_value());
    while (g.turn(clock)) {
    }
    return *q.finished;
  };
  std::deque<generation> all(5);
  // Nothing is known: it is served. Time stands still.
  CHECK(run(all[0], 10) == kv::finish_reason::length);
  // Twelve tokens take some 20 ms from now on, since the clock steps on.
  step_ms = 10;
  CHECK(run(all[1], 12) == kv::finish_reason::length);
  all[2].text.assign(180, 7);
  CHECK(g.submit(all[2], now) == refusal::deadline_infeasible);
  CHECK(all[2].retry_from == never);  // 300 ms alone.
  CHECK(run(all[3], 11) == kv::finish_reason::length);
  CHECK(all[3].produced == alone(model, all[3]));
  // Late before it begins: on arrival, or because its time has passed unused.
  all[4].text.assign(1, 5);
  all[4].arrival = now - std::chrono::milliseconds{101};
  CHECK(g.submit(all[4], now) == refusal::deadline_infeasible);
  all[4].arrival = never;
  REQUIRE_FALSE(g.submit(all[4], now).has_value());
  now += std::chrono::milliseconds{101};
  while (g.turn(clock)) {
  }
  CHECK(all[4].finished == kv::finish_reason::deadline);
}

TEST_CASE("what cannot run is refused, what is wrong throws") {
  const llama model = tiny(1);
  generator g{model, {.slots = 1, .columns = 16, .kv_bytes = 64 * model.config().column_bytes()}};
  generation q;
  CHECK_THROWS_AS(g.submit(q), config_error);
  q.text = {259};
  CHECK_THROWS_AS(g.submit(q), config_error);
  q.text = {-1};
  CHECK_THROWS_AS(g.submit(q), config_error);
  q.text.assign(200, 1);
  CHECK(g.submit(q) == refusal::too_big);
  q.text.assign(60, 1);
  q.max_new = 10;
  CHECK(g.submit(q) == refusal::too_big);
  q.text = {1};
  q.how.top_p = 2;
  CHECK_THROWS_AS(g.submit(q), config_error);
  CHECK_THROWS_AS((generator{model, {.prefill_chunk = 0}}), config_error);
  CHECK_THROWS_AS((generator{model, {.prefill_ahead = 0}}), config_error);
  CHECK_THROWS_AS((generator{model, {.max_prefilling = 0}}), config_error);
}

TEST_CASE("a generator may be destroyed while a prompt is under way") {
  const llama model = tiny(2);
  generation q;
  q.text.assign(150, 7);
  q.max_new = 2;
  generator g{model, {.slots = 1, .columns = 16}};
  generation first;
  first.text = {1};
  first.max_new = 50;
  REQUIRE_FALSE(g.submit(first).has_value());
  g.turn(no_time);
  REQUIRE_FALSE(g.submit(q).has_value());
  g.turn(no_time);
}

}  // namespace
}  // namespace cohort::llama::generator_test
