// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/decode_scheduler.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>
#include <cohort/kv/prompt/slo_admission.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <support/owned_requests.hpp>
#include <support/random_source.hpp>

#include "tagged_memory.hpp"

namespace cohort::kv::decode_scheduler_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// Carries decisions out on tagged memory, and notes the ends.
struct recording_sink {
  explicit recording_sink(std::uint32_t columns) : memory{columns} {}

  void execute(const copy_plan& plan) { memory.run(plan); }
  std::uint64_t allocate(sequence&, std::uint32_t columns) {
    CHECK(columns > 0);
    if (has_room && !has_room()) throw resource_error{"no room for columns"};
    memory.packed[next_storage];
    return next_storage++;
  }
  void release(std::uint64_t storage) { REQUIRE(memory.packed.erase(storage) == 1); }
  void finish(sequence& s, finish_reason why) {
    REQUIRE(s.state == sequence_state::idle);
    REQUIRE(ended.emplace(s.number, why).second);  // Exactly one.
    order.push_back(s.id.value());
    if (owns) owned.end(s);
  }
  std::uint64_t prefill(const sequence& s) {
    memory.prefill(next_storage, s.number, s.prompt);
    return next_storage++;
  }

  test::tagged_memory memory;
  std::uint64_t next_storage = 1;
  std::map<std::uint64_t, finish_reason> ended;
  std::vector<std::uint64_t> order;
  std::function<bool()> has_room;  // For a sequence that is preempted.
  bool owns = false;               // Sequences, which are gone when they end:
  test::owned_requests<sequence> owned;
};

/// Any that has not ended, or none.
sequence* any(const recording_sink& sink, test::random_source& random) {
  const auto& all = sink.owned.live();
  return all.empty() ? nullptr : all[random.below(all.size())];
}

/// Drives a scheduler; checks that each slot's columns are its own after every iteration.
template <class Scheduler>
struct driver {
  driver(const scheduler_options& o) : scheduler{o}, sink{o.batch.columns} {}

  void prefill_all() {
    for (;;) {
      const auto group = scheduler.next_prefill();
      if (group.empty()) return;
      for (sequence* s : std::vector<sequence*>(group.begin(), group.end())) {
        scheduler.on_prefilled(*s, sink.prefill(*s), 1, false, sink);
      }
    }
  }
  /// Writes the tokens' columns, and checks that all others are still right.
  void compute() {
    const decode_batch& b = scheduler.batch();
    for (std::uint32_t i = 0; i < b.size(); ++i) {
      if (!b[i].live) continue;
      const sequence& s = scheduler.in_slot(i);
      REQUIRE(s.slot == i);
      REQUIRE(s.id == b[i].who.id);
      sink.memory.at(i, b.window().physical(b.window().end() - 1)) = {s.number,
                                                                      b[i].who.length - 1};
      const auto own = sink.memory.own(b, i);
      REQUIRE(own.size() == b[i].who.length);
      for (std::size_t p = 0; p < own.size(); ++p) {
        REQUIRE(own[p] == test::cell{s.number, static_cast<std::int64_t>(p)});
      }
    }
  }
  bool iterate(time_point now = t0) {
    if (!scheduler.begin(now, sink)) return false;
    compute();
    for (std::uint32_t i = 0; i < scheduler.batch().size(); ++i) {
      if (scheduler.batch()[i].live) scheduler.on_token(i, 1, false, sink);
    }
    return true;
  }

  Scheduler scheduler;
  recording_sink sink;
};

TEST_CASE("a slot that becomes free is filled before the next iteration") {
  driver<decode_scheduler<fifo>> d{{.batch = {.slots = 2, .columns = 4}, .max_slots = 2}};
  // The worked example: 9 iterations, 5 of 6 ever enter.
  std::deque<sequence> all(6);
  const std::uint32_t shape[6][2] = {{5, 3}, {2, 6}, {7, 1}, {3, 4}, {6, 2}, {4, 5}};
  for (std::size_t i = 0; i < 6; ++i) {
    all[i].id = request_id{i};
    all[i].prompt = shape[i][0];
    all[i].max_new = shape[i][1];
    CHECK_FALSE(d.scheduler.submit(all[i]).has_value());
  }
  d.prefill_all();
  CHECK(d.sink.order == std::vector<std::uint64_t>{2});  // One token: ends at prefill.
  while (d.iterate()) {
  }
  CHECK(d.scheduler.iterations() == 9);
  CHECK(d.scheduler.inserts() == 5);
  CHECK(d.scheduler.starved() == 0);
  CHECK(d.sink.order == std::vector<std::uint64_t>{2, 0, 3, 1, 4, 5});
  CHECK(d.scheduler.empty());
  CHECK(d.sink.memory.packed.empty());  // Nothing leaks.
}

TEST_CASE("a sequence is refused if it can never run, or if too many wait") {
  decode_scheduler<> s{{.batch = {.slots = 1, .columns = 4},
                        .max_slots = 1,
                        .max_queued = 1,
                        .max_positions = 64,
                        .budget = {.high_bytes = 50, .low_bytes = 50, .bytes_per_column = 1}}};
  sequence big;
  big.prompt = 30;
  big.max_new = 21;
  CHECK(s.submit(big) == refusal::too_big);
  big.max_new = 20;
  CHECK_FALSE(s.submit(big).has_value());
  sequence more;
  CHECK(s.submit(more) == refusal::queue_full);
  CHECK(more.state == sequence_state::idle);
  more.prompt = 64;
  CHECK(s.submit(more) == refusal::too_big);
  more.prompt = 0;
  CHECK(s.submit(more) == refusal::too_big);
}

TEST_CASE("reasons: stop, length, context, cancelled, deadline, error") {
  driver<decode_scheduler<>> d{
      {.batch = {.slots = 8, .columns = 4}, .max_slots = 8, .max_positions = 10}};
  std::deque<sequence> all(7);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].id = request_id{i};
    all[i].prompt = 3;
    all[i].max_new = 5;
    CHECK_FALSE(d.scheduler.submit(all[i]).has_value());
  }
  all[0].max_new = 2;
  all[1].max_new = 100;
  all[4].deadline = t0 + 1ms;
  const auto group = d.scheduler.next_prefill();
  REQUIRE(group.size() == 7);
  d.scheduler.cancel(all[3], d.sink);  // Under prefill: later.
  CHECK(d.sink.ended.empty());
  for (std::size_t i = 0; i < 7; ++i) {
    if (i == 5) {
      d.scheduler.on_prefill_failed(all[5], d.sink);
    } else {
      d.scheduler.on_prefilled(all[i], d.sink.prefill(all[i]), 1, i == 6, d.sink);
    }
  }
  CHECK(d.sink.ended.at(all[3].number) == finish_reason::cancelled);
  CHECK(d.sink.ended.at(all[5].number) == finish_reason::error);
  CHECK(d.sink.ended.at(all[6].number) == finish_reason::stop);
  CHECK(d.iterate(t0));
  CHECK(d.sink.ended.at(all[0].number) == finish_reason::length);
  CHECK(d.iterate(t0 + 1ms));
  CHECK(d.sink.ended.at(all[4].number) == finish_reason::deadline);
  d.scheduler.cancel(all[2], d.sink);
  CHECK(d.sink.ended.at(all[2].number) == finish_reason::cancelled);
  while (d.iterate(t0 + 1ms)) {
  }
  // 3 + 7 tokens fill positions 0 to 9.
  CHECK(d.sink.ended.at(all[1].number) == finish_reason::context_length);
  CHECK(all[1].who.produced == 7);
  CHECK(d.sink.memory.packed.empty());
}

TEST_CASE("a cancellation in the middle of an iteration waits for its token; finishing wins") {
  driver<decode_scheduler<>> d{{.batch = {.slots = 2, .columns = 4}, .max_slots = 2}};
  std::deque<sequence> all(2);
  for (sequence& s : all) {
    s.prompt = 2;
    s.max_new = 2;
    d.scheduler.submit(s);
  }
  all[1].max_new = 9;
  d.prefill_all();
  REQUIRE(d.scheduler.begin(t0, d.sink));
  d.scheduler.cancel(all[0], d.sink);
  d.scheduler.cancel(all[1], d.sink);
  CHECK(d.sink.ended.empty());
  d.scheduler.on_token(all[0].slot, 1, false, d.sink);
  d.scheduler.on_token(all[1].slot, 1, false, d.sink);
  CHECK(d.sink.ended.at(all[0].number) == finish_reason::length);
  CHECK(d.sink.ended.at(all[1].number) == finish_reason::cancelled);
}

TEST_CASE("under its budget a batch sheds, and later gives the rows back") {
  // 4 columns of slack at 2 × 20.
  driver<decode_scheduler<>> d{
      {.batch = {.slots = 2, .columns = 4},
       .max_slots = 2,
       .budget = {.high_bytes = 40, .low_bytes = 30, .bytes_per_column = 1, .min_residency = 2}}};
  std::deque<sequence> all(2);
  all[0].prompt = 10;
  all[0].max_new = 25;
  all[1].prompt = 8;
  all[1].max_new = 20;
  for (sequence& s : all) CHECK_FALSE(d.scheduler.submit(s).has_value());
  d.prefill_all();
  while (d.iterate()) {
  }
  CHECK(d.scheduler.preemptions() == 1);
  CHECK(d.scheduler.inserts() == 3);
  CHECK(d.scheduler.peak_bytes() <= 40);
  CHECK(all[0].who.produced == 25);
  CHECK(all[1].who.produced == 20);
  CHECK(d.sink.memory.packed.empty());
}

TEST_CASE("who must be packed where there is no storage ends with an error, and others go on") {
  driver<decode_scheduler<>> d{
      {.batch = {.slots = 2, .columns = 4},
       .max_slots = 2,
       .budget = {.high_bytes = 40, .low_bytes = 30, .bytes_per_column = 1, .min_residency = 2}}};
  d.sink.has_room = [] { return false; };
  std::deque<sequence> all(2);
  all[0].prompt = 10;
  all[0].max_new = 25;
  all[1].prompt = 8;
  all[1].max_new = 20;
  for (sequence& s : all) CHECK_FALSE(d.scheduler.submit(s).has_value());
  d.prefill_all();
  while (d.iterate()) {
  }
  // At 20 columns the shorter row has 18, and frees 20 / 18 for each, the longer one 22 / 20.
  CHECK(d.sink.ended.at(all[1].number) == finish_reason::error);
  CHECK(all[1].who.produced == 11);
  CHECK(d.sink.ended.at(all[0].number) == finish_reason::length);
  CHECK(all[0].who.produced == 25);
  CHECK(d.scheduler.preemptions() == 0);
  CHECK(d.scheduler.empty());
  CHECK(d.sink.memory.packed.empty());
  // Asked for by somebody else: it runs on.
  CHECK_FALSE(d.scheduler.submit(all[1]).has_value());
  d.prefill_all();
  REQUIRE(d.iterate());
  CHECK_THROWS_AS(d.scheduler.preempt(all[1], d.sink), resource_error);
  CHECK(all[1].state == sequence_state::running);
  while (d.iterate()) {
  }
  CHECK(d.sink.ended.at(all[1].number) == finish_reason::length);
}

TEST_CASE("an iteration that failed ends who was in it or packed since the last, and nobody else") {
  for (const bool has_run_since : {false, true}) {
    CAPTURE(has_run_since);
    driver<decode_scheduler<>> d{{.batch = {.slots = 1, .columns = 4}, .max_slots = 1}};
    std::deque<sequence> all(4);
    const auto submit = [&](std::size_t i, std::uint8_t priority) {
      all[i].id = request_id{i};
      all[i].prompt = 3;
      all[i].max_new = 9;
      all[i].priority = priority;
      REQUIRE_FALSE(d.scheduler.submit(all[i]).has_value());
    };
    submit(0, 1);
    d.prefill_all();
    REQUIRE(d.iterate());
    submit(1, 0);  // It takes the slot from the first.
    submit(2, 2);  // It waits for a slot.
    d.prefill_all();
    submit(3, 2);  // It waits for its prefill.
    d.scheduler.preempt(all[0], d.sink);
    if (has_run_since) REQUIRE(d.iterate());
    REQUIRE(d.scheduler.begin(t0, d.sink));
    REQUIRE(all[1].state == sequence_state::running);
    d.scheduler.on_iteration_failed(d.sink);
    CHECK(d.sink.ended.at(all[1].number) == finish_reason::error);
    CHECK(d.sink.ended.contains(all[0].number) == !has_run_since);
    CHECK(d.sink.ended.size() == (has_run_since ? 1 : 2));
    d.prefill_all();
    while (d.iterate()) {
    }
    CHECK(d.sink.ended.at(all[0].number) ==
          (has_run_since ? finish_reason::length : finish_reason::error));
    CHECK(d.sink.ended.at(all[2].number) == finish_reason::length);
    CHECK(d.sink.ended.at(all[3].number) == finish_reason::length);
    CHECK(d.scheduler.empty());
    CHECK(d.sink.memory.packed.empty());
  }
}

TEST_CASE("copies may fail with no iteration begun") {
  driver<decode_scheduler<>> d{{.batch = {.slots = 2, .columns = 4}, .max_slots = 2}};
  std::deque<sequence> all(2);
  for (std::size_t i = 0; i < 2; ++i) {
    all[i].id = request_id{i};
    all[i].prompt = 3;
    all[i].max_new = 9;
    REQUIRE_FALSE(d.scheduler.submit(all[i]).has_value());
  }
  d.prefill_all();
  REQUIRE(d.iterate());
  d.scheduler.preempt(all[1], d.sink);
  d.scheduler.on_iteration_failed(d.sink);
  CHECK(d.sink.ended.at(all[0].number) == finish_reason::error);
  CHECK(d.sink.ended.at(all[1].number) == finish_reason::error);
  CHECK(d.scheduler.empty());
  CHECK(d.sink.memory.packed.empty());
}

TEST_CASE("a preempted sequence goes before its equals that never ran") {
  driver<decode_scheduler<>> d{{.batch = {.slots = 1, .columns = 4}, .max_slots = 1}};
  std::deque<sequence> all(2);
  for (std::size_t i = 0; i < 2; ++i) {
    all[i].id = request_id{i};
    all[i].prompt = 3;
    all[i].max_new = 5;
  }
  d.scheduler.submit(all[1]);
  d.prefill_all();
  d.iterate();
  d.scheduler.submit(all[0]);
  d.prefill_all();
  d.scheduler.preempt(all[1], d.sink);
  CHECK(all[1].state == sequence_state::prepared);
  d.iterate();
  CHECK(all[1].state == sequence_state::running);
  CHECK(all[1].who.produced == 3);
}

TEST_CASE("among equals the oldest are prefilled first, however many wait") {
  scheduler_options o{};
  o.prefill.max_rows = 1;
  decode_scheduler<> scheduler{o};
  std::deque<sequence> all(100);
  for (sequence& s : all) {
    s.prompt = 4;
    s.priority = static_cast<std::uint8_t>(&s == &all.back() ? 0 : 1);
    REQUIRE_FALSE(scheduler.submit(s));
  }
  recording_sink sink{64};
  const auto next = [&]() -> sequence* {
    const auto group = scheduler.next_prefill();
    if (group.empty()) return nullptr;
    sequence* s = group.front();
    scheduler.on_prefill_failed(*s, sink);
    return s;
  };
  CHECK(next() == &all.back());  // The most important.
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    CAPTURE(i);
    REQUIRE(next() == &all[i]);
  }
  CHECK(next() == nullptr);
}
TEST_CASE("bad options are refused") {
  CHECK_THROWS_AS((decode_scheduler<>{{.batch = {.slots = 4}, .max_slots = 3}}), config_error);
  scheduler_options line{.batch = {.layout = column_layout::line}};
  line.budget.commit = kv_commit::ring;
  CHECK_THROWS_AS((decode_scheduler<>{line}), config_error);
  CHECK_THROWS_AS((decode_scheduler<>{{.max_queued = 0}}), config_error);
  CHECK_THROWS_AS((decode_scheduler<>{{.max_prepared = 0}}), config_error);
  CHECK_THROWS_AS((decode_scheduler<>{{.max_positions = 1}}), config_error);
}

using slo_scheduler = decode_scheduler<by_priority, slo_admission<>>;

slo_admission<> ms_a_token(const slo_options& o = {}) {
  return slo_admission{o, linear_prefill{.per_token = 1ms}};
}

TEST_CASE("by SLO: the latest that can be kept is refused, given up, or waits for a slot") {
  slo_scheduler scheduler{{.batch = {.slots = 1}, .max_slots = 1, .prefill = {.max_rows = 1}},
                          by_priority{},
                          ms_a_token({.between_tokens = 50ms})};
  recording_sink sink{64};
  const decode_load pace{.iteration = 10ms};
  std::deque<sequence> all(4);
  for (sequence& s : all) {
    s.prompt = 20;
    s.max_new = 2;
    s.first_token_by = t0 + 100ms;
  }
  all[1].first_token_by = t0 + 30ms;
  CHECK_FALSE(scheduler.submit(all[0], pace, t0).has_value());
  CHECK_FALSE(scheduler.submit(all[1], pace, t0 + 10ms).has_value());
  all[2].first_token_by = t0 + 29ms;
  CHECK(scheduler.submit(all[2], pace, t0 + 10ms) == refusal::deadline_infeasible);
  CHECK(all[2].state == sequence_state::idle);
  // The earliest deadline first.
  auto group = scheduler.next_prefill(pace, t0 + 10ms, sink);
  REQUIRE(group.size() == 1);
  CHECK(group[0] == &all[1]);
  scheduler.on_prefilled(all[1], sink.prefill(all[1]), 1, false, sink);
  // The only slot is taken: the other waits for it, up to its last instant.
  CHECK(scheduler.next_prefill(pace, t0 + 30ms, sink).empty());
  CHECK(scheduler.prefill_wake() == t0 + 80ms + 1ns);
  REQUIRE(scheduler.begin(t0 + 30ms, sink));
  CHECK(scheduler.next_prefill(pace, t0 + 30ms, sink).empty());
  scheduler.on_token(0, 1, false, sink);  // Its second and last.
  group = scheduler.next_prefill(pace, t0 + 40ms, sink);
  REQUIRE(group.size() == 1);
  CHECK(group[0] == &all[0]);
  CHECK_FALSE(scheduler.submit(all[3], pace, t0 + 40ms).has_value());
  scheduler.on_prefilled(all[0], sink.prefill(all[0]), 1, true, sink);
  CHECK(scheduler.next_prefill(pace, t0 + 80ms + 1ns, sink).empty());
  CHECK(sink.ended.at(all[3].number) == finish_reason::deadline);
  CHECK(scheduler.empty());
}

TEST_CASE("by SLO: prompts under prefill have slots to themselves, which others do not count on") {
  slo_scheduler scheduler{{.batch = {.slots = 3},
                           .max_slots = 3,
                           .max_prefilling = 8,
                           .max_overtaking = 8,
                           .prefill = {.max_rows = 1}},
                          by_priority{},
                          ms_a_token({.between_tokens = 50ms})};
  recording_sink sink{64};
  const decode_load pace{.iteration = 10ms};
  std::deque<sequence> all(6);
  for (sequence& s : all) {
    s.prompt = 4;
    s.max_new = 100;
    REQUIRE_FALSE(scheduler.submit(s, pace, t0).has_value());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const auto group = i == 1 ? scheduler.next_short_prefill(10, pace, t0, sink)
                              : scheduler.next_prefill(pace, t0, sink);
    REQUIRE(group.size() == 1);
    CHECK(group[0] == &all[i]);
  }
  // Three slots are free, and three prompts are out: the fourth would wait for its second token.
  CHECK(scheduler.next_prefill(pace, t0, sink).empty());
  CHECK(scheduler.next_short_prefill(10, pace, t0, sink).empty());
  scheduler.on_prefilled(all[0], sink.prefill(all[0]), 1, false, sink);
  REQUIRE(scheduler.begin(t0, sink));
  scheduler.on_token(0, 1, false, sink);
  CHECK(scheduler.next_prefill(pace, t0, sink).empty());  // One runs, two are out.
  // The second ends with its first token, and its slot is the fourth's.
  scheduler.on_prefilled(all[1], sink.prefill(all[1]), 1, true, sink);
  REQUIRE(scheduler.next_prefill(pace, t0, sink).size() == 1);
  CHECK(scheduler.next_prefill(pace, t0, sink).empty());
  scheduler.on_prefill_failed(all[2], sink);
  CHECK(scheduler.next_short_prefill(10, pace, t0, sink).size() == 1);
  CHECK(scheduler.next_prefill(pace, t0, sink).empty());
  scheduler.on_prefill_failed(all[3], sink);
  scheduler.on_prefill_failed(all[4], sink);
  scheduler.cancel(all[5], sink);
  scheduler.cancel(all[0], sink);
  CHECK(scheduler.empty());
}

TEST_CASE("with promises: refused for want of time, taken again when that is there") {
  slo_scheduler scheduler{
      {.batch = {.slots = 1}, .max_slots = 1, .max_prefilling = 8, .prefill = {.max_rows = 1}},
      by_priority{},
      ms_a_token({.await_slot = false, .promise = true})};
  recording_sink sink{64};
  std::deque<sequence> all(4);
  for (sequence& s : all) {
    s.prompt = 30;
    s.work = 30ms;
    s.max_new = 1;
    s.first_token_by = t0 + 80ms;
  }
  all[1].first_token_by = t0 + 60ms;
  CHECK_FALSE(scheduler.submit(all[0], {}, t0).has_value());
  CHECK_FALSE(scheduler.submit(all[1], {}, t0).has_value());
  CHECK(scheduler.submit(all[2], {}, t0) == refusal::deadline_infeasible);
  CHECK(scheduler.takes_from(all[2], {}, t0) == t0 + 10ms);
  CHECK(scheduler.next_short_prefill(100, {}, t0, sink).empty());
  auto group = scheduler.next_prefill({}, t0, sink);
  REQUIRE(group.size() == 1);
  CHECK(group[0] == &all[1]);
  group = scheduler.next_prefill({}, t0, sink);
  REQUIRE(group.size() == 1);
  CHECK(group[0] == &all[0]);
  // Ten are done of the first: 20, 30 and 30 are left, 80 ms from then on.
  scheduler.on_prefill_progress(all[1], 20ms);
  all[2].first_token_by = t0 + 90ms;
  CHECK_FALSE(scheduler.submit(all[2], {}, t0 + 10ms).has_value());
  all[3].first_token_by = t0 + 100ms;
  CHECK(scheduler.submit(all[3], {}, t0 + 10ms) == refusal::deadline_infeasible);
  // One that fails, or is cancelled while it waits, leaves its time to others.
  scheduler.on_prefill_failed(all[1], sink);
  CHECK_FALSE(scheduler.submit(all[3], {}, t0 + 10ms).has_value());
  scheduler.cancel(all[2], sink);
  scheduler.on_prefilled(all[0], sink.prefill(all[0]), 1, false, sink);
  CHECK_FALSE(scheduler.submit(all[2], {}, t0 + 30ms).has_value());
  scheduler.cancel(all[2], sink);
  scheduler.cancel(all[3], sink);
  CHECK(scheduler.empty());
}

TEST_CASE("several groups may be out, up to a number of prompts") {
  decode_scheduler<> scheduler{{.max_prefilling = 3, .prefill = {.max_rows = 2}}};
  recording_sink sink{64};
  std::deque<sequence> all(7);
  for (sequence& s : all) {
    s.prompt = 4;
    s.max_new = 1;
    REQUIRE_FALSE(scheduler.submit(s).has_value());
  }
  CHECK(scheduler.next_prefill().size() == 2);
  CHECK(scheduler.next_prefill().size() == 2);  // Two are fewer than three.
  CHECK(scheduler.next_prefill().empty());
  for (std::size_t i : {3U, 0U}) {
    scheduler.on_prefilled(all[i], sink.prefill(all[i]), 1, false, sink);
  }
  CHECK(scheduler.next_prefill().size() == 2);
  for (std::size_t i : {1U, 2U, 5U, 4U}) scheduler.on_prefill_failed(all[i], sink);
  CHECK(scheduler.next_prefill().size() == 1);
  scheduler.on_prefill_failed(all[6], sink);
  CHECK(scheduler.empty());
  CHECK(sink.ended.size() == 7);
}

TEST_CASE("short prompts have places of their own beside the long ones") {
  decode_scheduler<> scheduler{
      {.max_prefilling = 2, .max_overtaking = 2, .prefill = {.max_rows = 1}}};
  recording_sink sink{64};
  std::deque<sequence> all(10);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].prompt = i < 4 ? 100 : 3;
    REQUIRE_FALSE(scheduler.submit(all[i]));
  }
  const auto next = [&](bool is_short) -> sequence* {
    const auto group = is_short ? scheduler.next_short_prefill(10, {}, t0, sink)
                                : scheduler.next_prefill({}, t0, sink);
    return group.empty() ? nullptr : group.front();
  };
  CHECK(next(false) == &all[0]);
  CHECK(next(false) == &all[1]);
  CHECK(next(false) == nullptr);
  CHECK(next(true) == &all[4]);
  CHECK(next(true) == &all[5]);
  CHECK(next(true) == nullptr);
  // A place that is free is had by its own kind, in order.
  scheduler.on_prefill_failed(all[4], sink);
  CHECK(next(false) == nullptr);
  CHECK(next(true) == &all[6]);
  scheduler.on_prefilled(all[0], sink.prefill(all[0]), 1, true, sink);
  CHECK(next(true) == nullptr);
  CHECK(next(false) == &all[2]);
  scheduler.cancel(all[5], sink);
  scheduler.on_prefill_dropped(all[5], sink);
  for (const std::size_t i : {1U, 2U, 6U}) scheduler.on_prefill_failed(all[i], sink);
  CHECK(next(false) == &all[3]);
  CHECK(next(false) == &all[7]);  // Nothing long is left before it.
  CHECK(next(true) == &all[8]);
  CHECK(next(true) == &all[9]);
  for (const std::size_t i : {3U, 7U, 8U, 9U}) scheduler.on_prefill_failed(all[i], sink);
  CHECK(scheduler.empty());
  CHECK(sink.ended.size() == 10);
}

TEST_CASE("a prompt that is cancelled or expires under prefill may be dropped") {
  decode_scheduler<> scheduler{{.max_prefilling = 2, .prefill = {.max_rows = 2}}};
  recording_sink sink{64};
  std::deque<sequence> all(3);
  for (sequence& s : all) {
    s.prompt = 4;
    s.max_new = 3;
  }
  all[1].deadline = t0 + 1ms;
  for (sequence& s : all) REQUIRE_FALSE(scheduler.submit(s));
  REQUIRE(scheduler.next_prefill().size() == 2);
  scheduler.cancel(all[0], sink);
  CHECK_FALSE(scheduler.begin(t0 + 1ms, sink));
  CHECK(sink.ended.empty());
  CHECK(scheduler.next_prefill().empty());
  scheduler.on_prefill_dropped(all[0], sink);
  scheduler.on_prefill_dropped(all[1], sink);
  CHECK(sink.ended.at(all[0].number) == finish_reason::cancelled);
  CHECK(sink.ended.at(all[1].number) == finish_reason::deadline);
  REQUIRE(scheduler.next_prefill().size() == 1);  // Their places are free.
  scheduler.on_prefilled(all[2], sink.prefill(all[2]), 1, true, sink);
  CHECK(scheduler.empty());
}

TEST_CASE("a sequence that has ended is not looked at again") {
  decode_scheduler<> scheduler{{}};
  recording_sink sink{64};
  auto short_lived = std::make_unique<sequence>();
  REQUIRE_FALSE(scheduler.submit(*short_lived).has_value());
  CHECK(scheduler.next_prefill().size() == 1);
  scheduler.on_prefilled(*short_lived, sink.prefill(*short_lived), 1, false, sink);
  REQUIRE(sink.ended.size() == 1);
  short_lived.reset();
  CHECK_FALSE(scheduler.begin(t0, sink));
}

TEST_CASE("by SLO, too, every accepted sequence gets exactly one final event") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const scheduler_options o{.batch = {.slots = 1 + random.below(4U), .columns = 4},
                              .max_slots = 4,
                              .max_prefilling = 1 + random.below(6U),
                              .max_overtaking = random.below(3U),
                              .prefill = {.max_rows = 1 + random.below(4U), .max_waste = 0.5}};
    const bool promises = random.one_in(3);
    slo_scheduler scheduler{o, by_priority{},
                            ms_a_token({.between_tokens = 1ms * (5 + random.below(40)),
                                        .defer = !promises && random.one_in(2),
                                        .typical_prompt = 10,
                                        .await_slot = random.one_in(2),
                                        .target_tokens = promises || random.one_in(2) ? 0U : 30U,
                                        .drop_late = random.one_in(2),
                                        .promise = promises})};
    recording_sink sink{4};
    sink.owns = true;
    std::vector<sequence*> under_prefill;
    std::uint64_t accepted = 0;
    time_point now = t0;
    const auto turn = [&](bool may_submit) {
      now += 1ms;
      const decode_load pace{.iteration = 2ms, .is_coupled = random.one_in(3)};
      if (may_submit && random.below(40U) >= sink.owned.live().size()) {
        sequence& s = sink.owned.add();
        s.prompt = 1 + random.below(20U);
        s.max_new = 1 + random.below(12U);
        s.first_token_by = random.one_in(5) ? never : now + 1ms * random.below(120);
        s.work = 1ms * s.prompt;
        s.deadline = random.one_in(6) ? now + 1ms * random.below(200) : never;
        if (scheduler.submit(s, pace, now)) {
          sink.owned.end(s);
        } else {
          s.id = s.who.id = request_id{++accepted};
        }
      } else if (sequence* const s = any(sink, random);
                 may_submit && s != nullptr && random.one_in(10)) {
        scheduler.cancel(*s, sink);
      }
      for (sequence* p : scheduler.next_prefill(pace, now, sink)) under_prefill.push_back(p);
      for (sequence* p : scheduler.next_short_prefill(8, pace, now, sink)) {
        REQUIRE(p->prompt <= 8);
        under_prefill.push_back(p);
      }
      while (!under_prefill.empty() && !random.one_in(3)) {
        sequence* p = under_prefill[random.below(under_prefill.size())];
        if (random.one_in(3)) scheduler.on_prefill_progress(*p, p->work / 2);
        std::erase(under_prefill, p);
        scheduler.on_prefilled(*p, sink.prefill(*p), 1, random.one_in(10), sink);
      }
      if (!scheduler.begin(now, sink)) return;
      REQUIRE(scheduler.starved() == 0);
      for (std::uint32_t i = 0; i < scheduler.batch().size(); ++i) {
        if (scheduler.batch()[i].live) scheduler.on_token(i, 1, random.one_in(20), sink);
      }
    };
    for (int n = 0; n < 600; ++n) turn(true);
    for (int n = 0; n < 20000 && !scheduler.empty(); ++n) turn(false);
    REQUIRE(scheduler.empty());
    REQUIRE(sink.ended.size() == accepted);
    REQUIRE(sink.memory.packed.empty());
  }
}

/// Everything at random; each sequence must end once, and memory must be right all along.
template <class Pick>
void fuzz(std::uint64_t seed, int operations) {
  CAPTURE(seed);
  test::random_source random{seed};
  scheduler_options o{.batch = {.slots = 1 + random.below(4U), .columns = 4}};
  o.batch.layout = random.one_in(2) ? column_layout::ring : column_layout::line;
  o.max_slots = o.batch.slots + random.below(3U);
  o.max_queued = 1 + random.below(30U);
  o.max_prepared = 1 + random.below(6U);
  o.max_positions = random.one_in(2) ? 40 : 1000;
  o.prefill = {.max_rows = 1 + random.below(4U), .max_waste = 0.5};
  const std::uint64_t high = 60 + random.below(200U);
  o.budget = {.high_bytes = high,
              .low_bytes = high / 2 + random.below(high / 2 + 1),
              .bytes_per_column = 1,
              .lookahead = 1 + random.below(3U),
              .min_residency = random.below(8U)};
  if (o.batch.layout == column_layout::ring && random.one_in(2)) {
    o.budget.commit = kv_commit::ring;
  }
  driver<decode_scheduler<Pick>> d{o};
  if (random.one_in(2)) d.sink.has_room = [&] { return !random.one_in(10); };
  d.sink.owns = true;
  std::deque<sequence*> under_prefill;
  std::uint64_t accepted = 0;
  time_point now = t0;
  const auto answer = [&](sequence* s) {
    if ((s->cancel_requested || s->expired) && random.one_in(2)) {
      d.scheduler.on_prefill_dropped(*s, d.sink);
    } else if (random.one_in(20)) {
      d.scheduler.on_prefill_failed(*s, d.sink);
    } else {
      d.scheduler.on_prefilled(*s, d.sink.prefill(*s), 1, random.one_in(10), d.sink);
    }
  };
  for (int n = 0; n < operations; ++n) {
    now += 1ms;
    switch (random.below(8)) {
      case 0:
      case 1: {
        if (random.below(64U) < d.sink.owned.live().size()) break;
        sequence& s = d.sink.owned.add();
        s.prompt = 1 + random.below(29U);
        s.max_new = 1 + random.below(24U);
        s.priority = static_cast<std::uint8_t>(random.below(3U));
        s.deadline = random.one_in(5) ? now + 1ms * random.below(60) : never;
        if (d.scheduler.submit(s)) {
          d.sink.owned.end(s);
        } else {
          s.id = s.who.id = request_id{++accepted};
        }
        break;
      }
      case 2:
        if (under_prefill.empty()) {
          for (sequence* p : d.scheduler.next_prefill()) under_prefill.push_back(p);
        }
        break;
      case 3:
        if (!under_prefill.empty()) {
          answer(under_prefill.front());
          under_prefill.pop_front();
        }
        break;
      case 4:
        if (sequence* const s = any(d.sink, random); s != nullptr && random.one_in(4)) {
          d.scheduler.cancel(*s, d.sink);
        }
        break;
      case 5:
        if (sequence* const s = any(d.sink, random);
            s != nullptr && s->state == sequence_state::running && random.one_in(3)) {
          try {
            d.scheduler.preempt(*s, d.sink);
          } catch (const resource_error&) {
            REQUIRE(s->state == sequence_state::running);
          }
        }
        if (random.one_in(200)) d.scheduler.on_iteration_failed(d.sink);
        break;
      default:
        if (!d.scheduler.begin(now, d.sink)) break;
        if (random.one_in(100)) {
          d.scheduler.on_iteration_failed(d.sink);
          break;
        }
        d.compute();
        REQUIRE(d.scheduler.starved() == 0);
        REQUIRE(d.scheduler.peak_bytes() <= high);
        for (std::uint32_t i = 0; i < d.scheduler.batch().size(); ++i) {
          if (sequence* const s = any(d.sink, random); s != nullptr && random.one_in(10)) {
            d.scheduler.cancel(*s, d.sink);
          }
          if (!d.scheduler.batch()[i].live) continue;
          if (random.one_in(100)) {
            d.scheduler.on_token_failed(i, d.sink);
          } else {
            d.scheduler.on_token(i, 1, random.one_in(30), d.sink);
          }
        }
        break;
    }
  }
  // What was accepted ends, without further ado.
  for (int n = 0; n < 100000 && !d.scheduler.empty(); ++n) {
    if (under_prefill.empty()) {
      for (sequence* p : d.scheduler.next_prefill()) under_prefill.push_back(p);
    }
    while (!under_prefill.empty()) {
      answer(under_prefill.front());
      under_prefill.pop_front();
    }
    d.iterate(now);
  }
  REQUIRE(d.scheduler.empty());
  REQUIRE(d.sink.ended.size() == accepted);
  REQUIRE(d.sink.memory.packed.empty());
}

TEST_CASE("every accepted sequence gets exactly one final event, whatever happens") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    fuzz<by_priority>(seed, 1000);
    fuzz<fifo>(seed + 1000, 1000);
    fuzz<best_fit>(seed + 2000, 1000);
  }
}

TEST_CASE("100 000 operations with aborts lose no slot and no memory") {
  fuzz<by_priority>(4711, 100000);
}

}  // namespace
}  // namespace cohort::kv::decode_scheduler_test
