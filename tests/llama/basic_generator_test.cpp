// SPDX-License-Identifier: Apache-2.0
// The loop over a decoder that computes nothing: what it asks, and what becomes of failures.
#include <llama/basic_generator.hpp>

#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama/scripted_backend.hpp>
#include <support/random_source.hpp>

namespace cohort::llama::basic_generator_test {
namespace {
using namespace std::chrono_literals;

constexpr std::size_t vocabulary = scripted_vocabulary;

/// One of a prompt that no other has.
generation& add(std::deque<generation>& all, std::uint32_t prompt, std::uint32_t max_new) {
  generation& q = all.emplace_back();
  q.id = request_id{all.size()};
  q.text.assign(prompt, static_cast<kv::token_id>(all.size() % vocabulary));
  q.max_new = max_new;
  return q;
}

/// The loop around a prefiller, whose owner uses a text that has failed again at once.
struct hasty_loop {
  void prefill_starts(std::span<generation* const>, std::optional<duration>, time_point) {}
  void prefill_returned(time_point) {}
  void prefill_broke(std::string_view, time_point) {}
  void prefill_progress(generation&, duration) {}
  void prefilled(generation& g, std::uint64_t, const row_result&, time_point) {
    prefilled_ids.push_back(g.id.value());
  }
  void prefill_failed(generation& g) {
    failed_ids.push_back(g.id.value());
    g.prefix = then;
  }
  void prefill_dropped(generation&) { FAIL("nobody cancels"); }
  std::uint64_t then = 0;
  std::vector<std::uint64_t> prefilled_ids;
  std::vector<std::uint64_t> failed_ids;
};

TEST_CASE("of a prompt that has failed no second piece is looked at") {
  const generator_options o{.prefill_chunk = 4, .prefill_ahead = 2};
  scripted_backend backend{o};
  backend.fails = [](std::uint64_t job) { return job == 1; };
  prefiller<scripted_backend> p{backend, o};
  hasty_loop loop;
  std::deque<generation> all;
  for (int i = 0; i < 2; ++i) add(all, 8, 1).prompt = 8;
  std::array<kv::sequence*, 2> each{&all[0], &all[1]};
  p.take(std::span{each}.first(1), {}, loop);
  p.start({}, loop);  // Both pieces of the first.
  REQUIRE(p.is_busy());
  p.take(std::span{each}.last(1), {}, loop);
  loop.then = all[1].prefix;
  backend.wait_for_prefill();
  p.end({}, {}, loop);
  CHECK(loop.failed_ids == std::vector<std::uint64_t>{1});
  p.start({}, loop);
  backend.wait_for_prefill();
  p.end({}, {}, loop);
  CHECK(loop.failed_ids == std::vector<std::uint64_t>{1});
  CHECK(loop.prefilled_ids == std::vector<std::uint64_t>{2});
}

TEST_CASE("whatever fails and is cancelled, others have their tokens and no storage is lost") {
  std::size_t failed = 0;
  std::size_t dropped = 0;
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
                              .max_overtaking = random.below(4U),
                              .prefix_bytes = random.one_in(2) ? 0U : 500U * 8,
                              .prefill = {.max_rows = 3, .max_waste = 0.5}};
    scripted_backend backend{o};
    backend.patience = random.below(4U);
    if (random.one_in(2)) {
      backend.fails = [seed](std::uint64_t job) { return job * 31 % 7 == seed % 7; };
    }
    basic_generator g{backend, o};
    std::deque<generation> all;
    bool busy = true;
    time_point now{};
    const auto clock = [&] { return now += 1ns; };
    while (busy || all.size() < 40) {
      if (all.size() < 40 && random.one_in(2)) {
        generation& q = all.emplace_back();
        q.id = request_id{all.size()};
        q.text.resize(1 + random.below(random.one_in(5) ? 90U : 20U));
        for (kv::token_id& t : q.text) t = static_cast<kv::token_id>(random.below(vocabulary));
        if (all.size() > 1 && random.one_in(3)) q.text = all[random.below(all.size() - 1)].text;
        q.max_new = 1 + random.below(24U);
        if (random.one_in(8)) q.deadline = now + 1ns * random.below(300);
        q.how.logprobs = random.below(2U);  // Needs logits; the tokens are the same.
        REQUIRE_FALSE(g.submit(q).has_value());
      }
      if (!all.empty() && random.one_in(20)) g.cancel(all[random.below(all.size())]);
      if (!all.empty() && random.one_in(10)) {
        generation& victim = all[random.below(all.size())];
        if (victim.state == kv::sequence_state::running) g.preempt(victim);
      }
      busy = g.turn(clock);
    }
    CHECK(g.state().starved() == 0);
    for (const generation& q : all) {
      REQUIRE(q.finished.has_value());
      REQUIRE(q.times.size() == q.produced.size());
      const std::vector<kv::token_id> whole = truth(q);
      if (q.finished == kv::finish_reason::error) {
        ++failed;
        REQUIRE(q.produced.empty());
      } else if (q.finished == kv::finish_reason::cancelled ||
                 q.finished == kv::finish_reason::deadline) {
        if (q.produced.empty()) ++dropped;
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
  CHECK(dropped > 0);
  CHECK(hits > 0);
  CHECK(preemptions > 0);
}

TEST_CASE("prompts are kept within their bytes, the logits behind them included") {
  // A prompt of two tokens has 2 columns of 8 bytes, and 50 logits of 4.
  constexpr std::uint64_t least = 2 * 8 + 50 * 4;
  const generator_options o{.slots = 4, .columns = 16, .prefix_bytes = 100 * least};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::uint64_t most = 0;
  for (kv::token_id i = 0; i < 2000; ++i) {
    generation q;
    q.text = {i / 50, i % 50};
    q.max_new = 1;
    REQUIRE_FALSE(g.submit(q).has_value());
    while (g.turn(no_time)) {
    }
    REQUIRE(q.produced == truth(q));
    most = std::max(most, backend.columns() / 2);
  }
  CHECK(most < 100);
  CHECK(most > 30);  // What an entry takes for itself is less than twice that.
  generation again;
  again.text = {1999 / 50, 1999 % 50};
  again.max_new = 1;
  REQUIRE_FALSE(g.submit(again).has_value());
  while (g.turn(no_time)) {
  }
  CHECK(g.prefix_hits() == 1);
  CHECK(again.produced == truth(again));
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

TEST_CASE("a prompt that is cancelled in a job ends when that does, and is computed no further") {
  const generator_options o{
      .slots = 2, .columns = 16, .prefill_chunk = 4, .prefill_ahead = 2, .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::deque<generation> all;
  generation& running = add(all, 3, 40);
  REQUIRE_FALSE(g.submit(running).has_value());
  REQUIRE(g.turn(no_time));
  REQUIRE(g.turn(no_time));
  backend.patience = 5;
  generation& q = add(all, 100, 5);
  REQUIRE_FALSE(g.submit(q).has_value());
  REQUIRE(g.turn(no_time));
  REQUIRE(backend.jobs == 2);
  g.cancel(q);
  while (backend.is_computing()) {
    REQUIRE_FALSE(q.finished.has_value());  // Its storage is being written.
    REQUIRE(backend.columns() >= 100);
    REQUIRE(g.turn(no_time));
  }
  REQUIRE(g.turn(no_time));
  CHECK(q.finished == kv::finish_reason::cancelled);
  CHECK(q.produced.empty());
  CHECK(backend.columns() == 0);
  while (g.turn(no_time)) {
  }
  CHECK(backend.jobs == 2);
  CHECK(g.prefilled_tokens() == 3 + 8);
  CHECK(running.produced == truth(running));
}

TEST_CASE("prompts that are cancelled do not hold up whoever comes behind them") {
  const generator_options o{.slots = 2,
                            .columns = 16,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .max_prefilling = 4,
                            .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::deque<generation> all;
  for (int i = 0; i < 12; ++i) REQUIRE_FALSE(g.submit(add(all, 150, 5)).has_value());
  REQUIRE(g.turn(no_time));
  for (generation& q : all) g.cancel(q);
  generation& next = add(all, 2, 3);
  REQUIRE_FALSE(g.submit(next).has_value());
  while (g.turn(no_time)) {
  }
  CHECK(next.produced == truth(next));
  CHECK(g.prefilled_tokens() == 8 + 2);
  CHECK(backend.columns() == 0);
  all.pop_back();
  for (const generation& q : all) CHECK(q.finished == kv::finish_reason::cancelled);
}

TEST_CASE("what was computed of a cancelled prompt is kept by one who waits for it") {
  const generator_options o{
      .slots = 4, .columns = 16, .prefill_chunk = 4, .prefill_ahead = 2, .prefix_bytes = 0};
  // Who is cancelled, of three with one prompt, one after the other.
  for (const std::vector<std::size_t>& gone :
       {std::vector<std::size_t>{0}, {1}, {0, 1}, {1, 0}, {2, 0}, {0, 1, 2}}) {
    CAPTURE(gone.size());
    scripted_backend backend{o};
    basic_generator g{backend, o};
    std::deque<generation> all(3);
    for (generation& q : all) {
      q.text.assign(40, 7);
      q.max_new = 4;
      REQUIRE_FALSE(g.submit(q).has_value());
    }
    REQUIRE(g.turn(no_time));
    for (const std::size_t i : gone) {
      g.cancel(all[i]);
      CHECK(g.turn(no_time) == (i != gone.back() || gone.size() < 3));
      CHECK(all[i].finished == kv::finish_reason::cancelled);
    }
    while (g.turn(no_time)) {
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (std::ranges::find(gone, i) == gone.end()) CHECK(all[i].produced == truth(all[i]));
    }
    // One job before each that was cancelled; then nobody is left, or all of the prompt is needed.
    CHECK(g.prefilled_tokens() == (gone.size() == 3 ? 24 : 40));
    CHECK(backend.columns() == 0);
    CHECK(g.state().empty());
  }
}

TEST_CASE("a prompt whose deadline passes is computed no further") {
  const generator_options o{
      .slots = 2, .columns = 16, .prefill_chunk = 4, .prefill_ahead = 2, .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::deque<generation> all;
  time_point now{};
  generation& q = add(all, 100, 5);
  q.deadline = now + 10ns;
  REQUIRE_FALSE(g.submit(q).has_value());
  REQUIRE(g.turn([&] { return now; }));
  now += 10ns;
  while (g.turn([&] { return now; })) {
  }
  CHECK(q.finished == kv::finish_reason::deadline);
  CHECK(g.prefilled_tokens() <= 16);
  CHECK(backend.columns() == 0);
}

// Time is what was computed: tokens of prompts.
TEST_CASE("a short prompt does not wait for any number of long ones") {
  const generator_options o{.slots = 4,
                            .columns = 16,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .max_prefilling = 3,
                            .max_overtaking = 2,
                            .prefix_bytes = 0};
  for (const std::uint32_t size : {1U, 5U, 8U}) {
    CAPTURE(size);
    scripted_backend backend{o};
    basic_generator g{backend, o};
    std::deque<generation> all;
    for (int i = 0; i < 40; ++i) REQUIRE_FALSE(g.submit(add(all, 150, 2)).has_value());
    for (int i = 0; i < 5; ++i) REQUIRE(g.turn(no_time));
    generation& q = add(all, size, 2);
    REQUIRE_FALSE(g.submit(q).has_value());
    const std::uint64_t before = g.prefilled_tokens();
    while (q.produced.empty()) REQUIRE(g.turn(no_time));
    // Its own pieces, a long one's beside each, and what was left of the job.
    CHECK(g.prefilled_tokens() - before <= 3 * 8);
    while (g.turn(no_time)) {
    }
    for (const generation& each : all) REQUIRE(each.produced == truth(each));
    CHECK(backend.columns() == 0);
  }
}

// Time is what was computed, a millisecond a token, and what was waited.
TEST_CASE(
    "where first tokens are promised, whoever is accepted has his in time, whoever comes later") {
  std::size_t in_time = 0;
  std::size_t refused = 0;
  std::size_t followed = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const duration slo = 1ms * (20 + random.below(400));
    const generator_options o{.slots = 1 + random.below(6U),
                              .columns = 16,
                              .max_prepared = 1000,
                              .prefill_chunk = 1 + random.below(20U),
                              .prefill_ahead = 1 + random.below(4U),
                              .max_prefilling = 1,
                              .prefix_bytes = random.one_in(2) ? 0U : 400U * 8,
                              .first_token = slo};
    scripted_backend backend{o};
    basic_generator g{backend, o};
    duration waited{0};
    const auto clock = [&] {
      return time_point{1ms * static_cast<std::int64_t>(backend.computed) + waited};
    };
    g.calibrate(clock);
    CHECK(backend.columns() == 0);
    std::deque<generation> all;
    const std::uint32_t rush = 2 + random.below(12U);
    time_point last = clock();
    bool busy = true;
    while (all.size() < 120 || busy) {
      const time_point now = clock();
      // They came while the last job was computed.
      for (std::uint32_t n = random.below(rush); n > 0 && all.size() < 120; --n) {
        generation& q = add(all, 1 + random.below(random.one_in(5) ? 150U : 30U), 3);
        if (all.size() > 1 && random.one_in(4)) q.text = all[random.below(all.size() - 1)].text;
        q.priority = static_cast<std::uint8_t>(random.below(3U));
        last = std::max(last, now - 1ms * random.below(5));
        q.arrival = last;
        if (g.submit(q, now)) {
          ++refused;
          CHECK(q.retry_from >= now);
          all.pop_back();
          if (random.one_in(2)) break;
        }
      }
      if (!all.empty() && random.one_in(20)) g.cancel(all[random.below(all.size())]);
      busy = g.turn(clock);
      if (!busy && random.one_in(4)) waited += 1ms * random.below(50);
    }
    for (const generation& q : all) {
      REQUIRE(q.finished.has_value());
      if (q.finished == kv::finish_reason::cancelled) continue;
      REQUIRE(q.finished == kv::finish_reason::length);
      REQUIRE(q.times[0] - q.arrival <= slo);
      REQUIRE(q.produced == truth(q));
      ++in_time;
    }
    followed += g.prefix_hits();
  }
  CHECK(in_time > 5000);
  CHECK(refused > 2000);
  CHECK(followed > 100);
}

TEST_CASE("endless short prompts take no more than half of the time from long ones") {
  const generator_options o{.slots = 4,
                            .columns = 16,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .max_prefilling = 2,
                            .max_overtaking = 3,
                            .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::deque<generation> shorts;
  std::deque<generation> longs;
  std::uint64_t ended = 0;
  const auto submit_short = [&] { REQUIRE_FALSE(g.submit(add(shorts, 4, 1)).has_value()); };
  const auto run_until = [&](const generation& q) {
    while (!q.finished) {
      // Twenty of them wait at any time.
      while (shorts.size() - ended < 20) submit_short();
      g.turn(no_time);
      ended = static_cast<std::uint64_t>(std::ranges::count_if(
          shorts, [](const generation& s) { return s.finished.has_value(); }));
    }
  };
  for (int i = 0; i < 20; ++i) submit_short();
  const std::uint64_t before = g.prefilled_tokens();
  for (int i = 0; i < 4; ++i) REQUIRE_FALSE(g.submit(add(longs, 152, 1)).has_value());
  for (const generation& q : longs) run_until(q);
  // Those before them, as much again as their own, and a job each until the next has its place.
  CHECK(g.prefilled_tokens() - before <= (20 * 4) + (2 * 4 * 152) + (4 * 8));
  CHECK(ended > 100);
  while (g.turn(no_time)) {
  }
  CHECK(backend.columns() == 0);
}

TEST_CASE("logits that are no numbers end their text with an error, and no other") {
  const generator_options o{.slots = 4, .columns = 16, .prefill_chunk = 8, .prefix_bytes = 8000};
  for (const float poison : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const std::uint32_t index : {0U, 1U, 4U}) {  // Which token: 0 is the prompt's.
      for (const bool draws : {false, true}) {
        CAPTURE(poison);
        CAPTURE(index);
        CAPTURE(draws);
        scripted_backend backend{o};
        backend.poison = poison;
        basic_generator g{backend, o};
        std::deque<generation> all(4);
        for (std::size_t i = 0; i < 4; ++i) {
          generation& q = all[i];
          q.text.assign(10, i < 2 ? 3 : static_cast<kv::token_id>(4 + i));  // Two share a prompt.
          q.max_new = 6;
          if (draws) q.how = {.temperature = 0.001F, .seed = i};
        }
        for (generation& q : all) q.prompt = 10;
        const std::vector<kv::token_id> bad = truth(all[0]);
        backend.poisoned = bad[index];
        REQUIRE(std::ranges::find(bad, bad[index]) - bad.begin() == index);
        for (generation& q : all) REQUIRE_FALSE(g.submit(q).has_value());
        while (g.turn(no_time)) {
        }
        for (std::size_t i = 0; i < 4; ++i) {
          CAPTURE(i);
          const std::vector<kv::token_id> whole = truth(all[i]);
          const auto at = std::ranges::find(whole, backend.poisoned);
          CHECK(all[i].produced == std::vector<kv::token_id>(whole.begin(), at));
          CHECK(all[i].finished ==
                (at == whole.end() ? kv::finish_reason::length : kv::finish_reason::error));
        }
        CHECK(all[3].finished == kv::finish_reason::length);
        CHECK(g.state().starved() == 0);
        // Nothing is kept of a prompt whose own result is bad.
        CHECK(backend.columns() == (index == 0 ? 20 : 30));
      }
    }
  }
}

/// Notes what it hears, and that each kind of work is sent once before it returns.
struct noting_listener final : device_listener {
  struct note {
    time_point at;
    std::optional<duration> expected;
  };
  void takes(generation& g) noexcept override { taken.insert(&g); }
  void sent(device_work what, time_point now, std::optional<duration> expected) noexcept override {
    bool& is_sent = under_way.at(static_cast<std::size_t>(what));
    CHECK_FALSE(is_sent);
    is_sent = true;
    notes.at(static_cast<std::size_t>(what)).push_back({now, expected});
  }
  void returned(device_work what, time_point now) noexcept override {
    bool& is_sent = under_way.at(static_cast<std::size_t>(what));
    CHECK(is_sent);
    is_sent = false;
    CHECK(now > notes.at(static_cast<std::size_t>(what)).back().at);
  }
  void failed(device_work what, std::string_view why, time_point now) noexcept override {
    CHECK(std::exchange(under_way.at(static_cast<std::size_t>(what)), false));
    CHECK(now >= notes.at(static_cast<std::size_t>(what)).back().at);
    failures.emplace_back(what, why);
  }
  std::array<std::vector<note>, 2> notes;
  std::array<bool, 2> under_way{};
  std::set<const generation*> taken;
  std::vector<std::pair<device_work, std::string>> failures;
};

TEST_CASE("whoever hears of the device knows whose prompts it has before it gets them") {
  const generator_options o{.slots = 4,
                            .columns = 64,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .max_prefilling = 1,
                            .prefill = {.max_rows = 1}};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  noting_listener heard;
  g.watch(&heard);
  time_point now{};
  const auto clock = [&] { return now += 1ms; };
  std::deque<generation> all;
  for (const std::uint32_t prompt : {30U, 40U}) {
    REQUIRE_FALSE(g.submit(add(all, prompt, 2)).has_value());
  }
  CHECK(heard.taken.empty());
  bool was_told = false;
  backend.on_wait = [&] {
    was_told = heard.under_way.at(static_cast<std::size_t>(device_work::prefill)) &&
               heard.taken.contains(&all[0]);
  };
  g.turn(clock);
  CHECK(was_told);
  CHECK(heard.taken.size() == 1);  // The other waits for its turn.
  while (g.turn(clock)) {
  }
  CHECK(heard.taken.size() == 2);
}

TEST_CASE("all that goes to the device and returns is told of, with what is known of its time") {
  const generator_options o{.slots = 4, .columns = 64, .prefill_chunk = 4, .prefill_ahead = 2};
  scripted_backend backend{o};
  backend.patience = 2;
  basic_generator g{backend, o};
  noting_listener heard;
  g.watch(&heard);
  time_point now{};
  const auto clock = [&] { return now += 1ms; };  // So that all takes some milliseconds.
  std::deque<generation> all;
  REQUIRE_FALSE(g.submit(add(all, 3, 12)).has_value());
  for (int i = 0; i < 12; ++i) g.turn(clock);  // It has an iteration of its own.
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(g.submit(add(all, 20, 12)).has_value());
  while (g.turn(clock)) {
  }
  for (const device_work what : {device_work::iteration, device_work::prefill}) {
    const auto& notes = heard.notes.at(static_cast<std::size_t>(what));
    CHECK(notes.size() == (what == device_work::iteration ? backend.iterations : backend.jobs));
    CHECK_FALSE(heard.under_way.at(static_cast<std::size_t>(what)));
    REQUIRE(notes.size() > 2);
    CHECK_FALSE(notes[0].expected.has_value());
    for (std::size_t i = 1; i < notes.size(); ++i) {
      REQUIRE(notes[i].expected.has_value());
      CHECK(*notes[i].expected >= 1ms);
      CHECK(*notes[i].expected < 1s);
    }
  }
  // One that has more rows than the one before may take as many times as long.
  const auto& iterations = heard.notes.at(static_cast<std::size_t>(device_work::iteration));
  CHECK(std::ranges::any_of(iterations, [](const auto& n) { return n.expected >= 2ms; }));
}

TEST_CASE(
    "with a limit between tokens no second token waits for a slot, however many prompts come") {
  std::size_t gaps = 0;
  std::size_t late = 0;
  std::size_t late_without = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    for (const bool holds : {true, false}) {
      test::random_source random{seed};
      const generator_options o{.slots = 4,
                                .columns = 64,
                                .prefill_chunk = 4,
                                .prefill_ahead = 1 + random.below(3U),
                                .prefix_bytes = 0,
                                .between_tokens = holds ? 20ms : unbounded};
      scripted_backend backend{o};
      time_point now{};
      const auto clock = [&] { return now; };
      backend.on_iterate = [&] { now += 2ms; };
      backend.on_wait = [&] { now += 1ms; };
      basic_generator g{backend, o};
      std::deque<generation> all;
      bool busy = true;
      while (busy || all.size() < 24) {
        // Half of the seeds: all at once.
        for (std::size_t n = seed % 2 == 0 ? 24 : random.below(3U); n > 0 && all.size() < 24; --n) {
          add(all, 1 + random.below(30U), 5 + random.below(60U));
          REQUIRE_FALSE(g.submit(all.back(), now).has_value());
        }
        if (!(busy = g.turn(clock))) now += 1ms;
      }
      for (const generation& q : all) {
        REQUIRE(q.produced == truth(q));
        for (std::size_t i = 1; i < q.times.size(); ++i) {
          const bool is_late = q.times[i] - q.times[i - 1] > 20ms;
          (holds ? late : late_without) += is_late ? 1U : 0U;
          gaps += holds ? 1U : 0U;
        }
      }
      CHECK(g.state().starved() == 0);
    }
  }
  CHECK(late * 100 <= gaps);      // At most 1 %.
  CHECK(late_without >= 40 * 5);  // Of 24 prompts and 4 slots some 15 wait.
}

TEST_CASE("what fails ends the texts that were in it with an error, and the loop goes on") {
  const generator_options o{.slots = 2,
                            .columns = 4,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .max_prefilling = 1,
                            .prefix_bytes = 0,
                            .prefill = {.max_rows = 1}};
  enum class fault { iteration, iteration_throws, copies, prompt, prompt_throws };
  for (const fault f : {fault::iteration, fault::iteration_throws, fault::copies, fault::prompt,
                        fault::prompt_throws}) {
    CAPTURE(static_cast<int>(f));
    const bool is_prompt = f == fault::prompt || f == fault::prompt_throws;
    scripted_backend backend{o};
    basic_generator g{backend, o};
    noting_listener heard;
    g.watch(&heard);
    time_point now{};
    const auto clock = [&] { return now += 1ms; };
    std::deque<generation> all;
    generation& running = add(all, 3, 40);
    REQUIRE_FALSE(g.submit(running).has_value());
    while (running.produced.size() < 4) REQUIRE(g.turn(clock));
    generation& prefilling = add(all, 20, 6);  // Three jobs.
    REQUIRE_FALSE(g.submit(prefilling).has_value());
    REQUIRE(g.turn(clock));
    REQUIRE(backend.is_computing());
    const std::uint64_t job = backend.jobs;
    const auto breaks = [] { throw std::runtime_error{"thrown"}; };
    if (f == fault::iteration) backend.broken_iteration = backend.iterations + 1;
    if (f == fault::iteration_throws) backend.on_iterate = breaks;
    if (f == fault::copies) backend.on_execute = breaks;
    if (f == fault::prompt) backend.fails = [&](std::uint64_t j) { return j == job; };
    if (f == fault::prompt_throws) backend.on_start = breaks;
    // Until it has been told of: copies are not made in each turn.
    while (heard.failures.empty()) REQUIRE(g.turn(clock));
    backend.on_iterate = backend.on_execute = backend.on_start = nullptr;
    generation& next = add(all, 5, 6);
    REQUIRE_FALSE(g.submit(next).has_value());
    REQUIRE(heard.failures.size() == 1);
    CHECK(heard.failures[0].first == (is_prompt ? device_work::prefill : device_work::iteration));
    CHECK(heard.failures[0].second == (f == fault::iteration ? "an iteration broke"
                                       : f == fault::prompt  ? "a prompt broke"
                                                             : "thrown"));
    while (g.turn(clock)) {
    }
    generation& victim = is_prompt ? prefilling : running;
    generation& other = is_prompt ? running : prefilling;
    CHECK(victim.finished == kv::finish_reason::error);
    CHECK(victim.produced.empty() == is_prompt);
    const auto whole = truth(victim);
    CHECK(std::equal(victim.produced.begin(), victim.produced.end(), whole.begin()));
    CHECK(victim.produced.size() < whole.size());
    for (generation* each : {&other, &next}) {
      CHECK(each->finished == kv::finish_reason::length);
      CHECK(each->produced == truth(*each));
    }
    CHECK(heard.failures.size() == 1);
    CHECK(backend.columns() == 0);
    CHECK(g.state().empty());
  }
}

TEST_CASE("a text that must be preempted where there is no memory ends alone") {
  // A row that grows from 32 to 64 columns takes 768 bytes meanwhile, two rows twice as much.
  const generator_options o{.slots = 2, .columns = 4, .kv_bytes = 1000, .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  std::deque<generation> all;
  for (int i = 0; i < 2; ++i) REQUIRE_FALSE(g.submit(add(all, 8, 30)).has_value());
  bool has_run = false;
  while (g.turn(no_time)) {
    const bool is_running =
        all[0].state == kv::sequence_state::running && all[1].state == kv::sequence_state::running;
    if (is_running && !has_run) {
      has_run = true;
      backend.on_allocate = [] { throw resource_error{"no room"}; };
    }
  }
  REQUIRE(has_run);
  const bool first_failed = all[0].finished == kv::finish_reason::error;
  const generation& failed = all[first_failed ? 0 : 1];
  const generation& other = all[first_failed ? 1 : 0];
  CHECK(failed.finished == kv::finish_reason::error);
  CHECK(failed.produced.size() < 30);
  CHECK(other.produced == truth(other));
  CHECK(g.state().preemptions() == 0);
  CHECK(backend.columns() == 0);
}

TEST_CASE("promises are made again when a device is well that hung, was slow, or failed at once") {
  const generator_options o{.slots = 2,
                            .columns = 16,
                            .prefill_chunk = 4,
                            .prefill_ahead = 2,
                            .prefix_bytes = 0,
                            .first_token = 400ms};
  enum class trouble { hangs, is_slow, fails };
  for (const trouble t : {trouble::hangs, trouble::is_slow, trouble::fails}) {
    for (const device_work in : {device_work::prefill, device_work::iteration}) {
      CAPTURE(static_cast<int>(t));
      CAPTURE(static_cast<int>(in));
      scripted_backend backend{o};
      basic_generator g{backend, o};
      duration waited{0};
      // A millisecond a token of a prompt, and as long an iteration.
      const auto clock = [&] {
        return time_point{1ms * static_cast<std::int64_t>(backend.computed + backend.iterations) +
                          waited};
      };
      g.calibrate(clock);
      std::uint32_t times = t == trouble::hangs ? 1 : 30;
      const auto break_down = [&] {
        if (times == 0) return;
        --times;
        if (t == trouble::fails) throw std::runtime_error{"thrown"};
        waited += t == trouble::hangs ? 1h : 500ms;
      };
      (in == device_work::iteration ? backend.on_iterate
       : t == trouble::fails        ? backend.on_start
                                    : backend.on_wait) = break_down;
      std::deque<generation> all;
      for (int i = 0; i < 60; ++i) {
        generation& q = add(all, 20, 2);
        if (g.submit(q, clock())) all.pop_back();
        while (g.turn(clock)) {
        }
        waited += 1s;
      }
      times = 0;
      waited += 10s;
      generation& q = add(all, 100, 2);
      REQUIRE_FALSE(g.submit(q, clock()).has_value());
      while (g.turn(clock)) {
      }
      REQUIRE(q.finished == kv::finish_reason::length);
      CHECK(q.times[0] - q.arrival <= 400ms);
      // That there is no time for five of them is known, too.
      std::size_t accepted = 0;
      for (int i = 0; i < 5; ++i) {
        if (g.submit(add(all, 100, 2), clock())) {
          all.pop_back();
        } else {
          ++accepted;
        }
      }
      CHECK(accepted >= 1);
      CHECK(accepted <= 4);
      while (g.turn(clock)) {
      }
    }
  }
}

TEST_CASE("a job of prompts that hung is not expected to again") {
  const generator_options o{.slots = 2, .columns = 16, .prefill_chunk = 4, .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  noting_listener heard;
  g.watch(&heard);
  time_point now{};
  const auto clock = [&] { return now += 1us; };
  backend.on_wait = [&] { now += 10ms; };
  std::deque<generation> all;
  const auto run = [&] {
    REQUIRE_FALSE(g.submit(add(all, 16, 1), now).has_value());  // A job.
    while (g.turn(clock)) {
    }
    return heard.notes.at(static_cast<std::size_t>(device_work::prefill)).back().expected;
  };
  CHECK_FALSE(run().has_value());
  for (int i = 0; i < 4; ++i) CHECK(run() < 11ms);
  backend.on_wait = [&] { now += 1h; };
  CHECK(run() < 11ms);
  backend.on_wait = [&] { now += 10ms; };
  // The mean of the last four: three of 10 ms, and one of three times that and 250.
  CHECK(*run() > 77ms);
  CHECK(*run() < 78ms);
}

TEST_CASE("what takes long once is not expected to again") {
  const generator_options o{.slots = 2, .columns = 16, .prefill_chunk = 4, .prefix_bytes = 0};
  scripted_backend backend{o};
  basic_generator g{backend, o};
  noting_listener heard;
  g.watch(&heard);
  time_point now{};
  const auto clock = [&] { return now += 1us; };
  backend.on_iterate = [&] { now += 10ms; };
  std::deque<generation> all;
  REQUIRE_FALSE(g.submit(add(all, 3, 100), now).has_value());
  const auto& notes = heard.notes.at(static_cast<std::size_t>(device_work::iteration));
  while (notes.size() < 10) g.turn(clock);
  CHECK(notes.back().expected < 11ms);
  now += 1h;  // In the turn: the process was stopped.
  backend.on_iterate = [&] { now += 1h; };
  g.turn(clock);
  backend.on_iterate = [&] { now += 1s; };
  g.turn(clock);
  // Three times 10 ms and 250 count for an eighth; a second is more than three times that and 250.
  CHECK(*notes.back().expected > 43ms);
  CHECK(*notes.back().expected < 44ms);
  g.turn(clock);
  CHECK(*notes.back().expected > 84ms);
  CHECK(*notes.back().expected < 86ms);
  for (int i = 0; i < 40; ++i) g.turn(clock);  // A device that is so slow for good.
  CHECK(*notes.back().expected > 900ms);
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
}  // namespace cohort::llama::basic_generator_test
