// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/prefill_queue.hpp>

#include <doctest/doctest.h>

#include <cohort/kv/prompt/slo_admission.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::prefill_queue_test {
namespace {
using namespace std::chrono_literals;

constexpr linear_prefill l{.fixed = 10ms, .per_token = 1ms};
constexpr decode_load free_slots{.room = 100};
constexpr time_point at(std::int64_t ms) { return time_point{ms * 1ms}; }

struct prompts {
  sequence& add(std::uint32_t tokens, time_point by = never) {
    sequence& s = all.emplace_back();
    s.prompt = tokens;
    s.number = all.size();
    s.first_token_by = by;
    return s;
  }
  std::deque<sequence> all;
};

std::vector<std::uint64_t> numbers(std::span<sequence* const> some) {
  std::vector<std::uint64_t> out;
  for (const sequence* s : some) out.push_back(s->number);
  return out;
}
using list = std::vector<std::uint64_t>;

TEST_CASE("fifo starts at once, around the first, by length") {
  prompts p;
  prefill_queue<> q{{.max_rows = 2, .max_waste = 0.5}};
  for (const std::uint32_t n : {10U, 40U, 8U, 9U}) q.push(p.add(n, at(0)));
  const prefill_decision d = q.next({}, at(1000));
  CHECK(numbers(d.group) == list{4, 1});  // 9 is nearest to 10.
  CHECK(d.late.empty());
  CHECK(q.size() == 2);
  CHECK(numbers(q.next({}, at(1000)).group) == list{2});
  CHECK(numbers(q.next({}, at(1000)).group) == list{3});
  CHECK(q.next({}, at(1000)).group.empty());
}

TEST_CASE("a group takes in whom it can and stay in time") {
  prompts p;
  prefill_queue<slo_admission<>> q{{.max_rows = 8, .max_waste = 10}, slo_admission<>{{}, l}};
  q.push(p.add(20, at(60)));
  q.push(p.add(20, at(50)));
  q.push(p.add(20, at(70)));
  // 10 + 40 ms are in time for the first two, 10 + 60 for nobody but the last.
  CHECK(numbers(q.next(free_slots, at(0)).group) == list{2, 1});
  CHECK(numbers(q.next(free_slots, at(40)).group) == list{3});
}

TEST_CASE("those that cannot be in time are given up at once, or served last") {
  for (const bool drops : {true, false}) {
    CAPTURE(drops);
    prompts p;
    prefill_queue<slo_admission<>> q{{.max_rows = 1}, slo_admission<>{{.drop_late = drops}, l}};
    q.push(p.add(30, at(39)));  // 40 ms.
    q.push(p.add(20, at(100)));
    const prefill_decision d = q.next(free_slots, at(0));
    CHECK(numbers(d.group) == list{2});
    CHECK(numbers(d.late) == (drops ? list{1} : list{}));
    CHECK(numbers(q.next(free_slots, at(30)).group) == (drops ? list{} : list{1}));
    CHECK(q.empty());
  }
}

TEST_CASE("a deferred group starts when its window opens, or when it is full") {
  prompts p;
  const slo_options o{.defer = true, .typical_prompt = 20};
  prefill_queue<slo_admission<>> q{{.max_rows = 2, .max_waste = 10}, slo_admission<>{o, l}};
  q.push(p.add(20, at(100)));
  // One more: 50 ms before 100.
  CHECK(q.next(free_slots, at(0)).wake == at(50));
  CHECK(q.next(free_slots, at(49)).group.empty());
  CHECK(numbers(q.next(free_slots, at(50)).group) == list{1});
  q.push(p.add(20, at(200)));
  CHECK(q.next(free_slots, at(60)).wake == at(150));
  q.push(p.add(20, at(210)));
  CHECK(numbers(q.next(free_slots, at(60)).group) == list{2, 3});
}

TEST_CASE("a group is no larger than the slots it will find") {
  prompts p;
  prefill_queue<slo_admission<>> q{{.max_rows = 8, .max_waste = 10},
                                   slo_admission<>{{.between_tokens = 50ms}, l}};
  for (int i = 0; i < 4; ++i) q.push(p.add(20, at(200)));
  CHECK(numbers(q.next({.live = 4, .room = 3}, at(0)).group) == list{1, 2, 3});
  const prefill_decision none = q.next({.live = 7}, at(0));
  CHECK(none.group.empty());
  CHECK(none.wake == at(170) + 1ns);
  CHECK(numbers(q.next({.live = 7}, at(170) + 1ns).late) == list{4});
}

TEST_CASE("with a target the first ones do not make the groups of the others small") {
  prompts p;
  prefill_queue<slo_admission<>> q{{.max_rows = 8, .max_waste = 10},
                                   slo_admission<>{{.target_tokens = 60}, l}};
  q.push(p.add(20, at(35)));
  for (int i = 0; i < 3; ++i) q.push(p.add(20, at(70)));
  // 80 tokens wait, so a group of 60 should be had, in 70 ms: not with the first.
  const prefill_decision d = q.next(free_slots, at(0));
  CHECK(numbers(d.late) == list{1});
  CHECK(numbers(d.group) == list{2, 3, 4});
}

TEST_CASE("with promises a group is of those due first, while they are in time and limits hold") {
  prompts p;
  prefill_queue<slo_admission<>> q{{.max_rows = 3, .max_waste = 0.5},
                                   slo_admission<>{{.promise = true}, l}};
  for (const auto& [tokens, by] : {std::pair{20U, 200},
                                   {20U, 90},
                                   {20U, 100},
                                   {2U, 300},
                                   {20U, 400},
                                   {20U, 400},
                                   {20U, 400},
                                   {20U, 400}}) {
    q.push(p.add(tokens, at(by)));
  }
  CHECK(numbers(q.next(free_slots, at(50)).group) == list{2});  // Two are done in 50 ms.
  CHECK(numbers(q.next(free_slots, at(70)).group) == list{3});
  CHECK(numbers(q.next(free_slots, at(80)).group) == list{1});  // 18 of padding to 22 tokens.
  CHECK(numbers(q.next(free_slots, at(80)).group) == list{4});
  CHECK(numbers(q.next({.room = 2}, at(80)).group) == list{5, 6});
  CHECK(numbers(q.next(free_slots, at(80)).group) == list{7, 8});
}

TEST_CASE("with promises nobody is accepted who makes another one late") {
  prompts p;
  prefill_queue<slo_admission<>> q{{.max_rows = 1}, slo_admission<>{{.promise = true}, l}};
  const auto come = [&](std::uint32_t tokens, std::int64_t by, std::int64_t now,
                        duration busy = 0ms) {
    sequence& s = p.add(tokens, at(by));
    s.work = l({1, tokens, tokens});
    const decode_load load{.prefill = {.busy = busy}};
    const bool can = q.can_take(s, load, at(now));
    if (can) q.push(s);
    return can;
  };
  CHECK(come(40, 100, 0));        // 50 ms.
  CHECK_FALSE(come(41, 100, 0));  // 51 more.
  CHECK(come(40, 100, 0));
  CHECK(come(10, 20, 0) == false);  // In time, but the others would not be.
  CHECK(come(20, 200, 0));          // 30 ms behind the two.
  CHECK_FALSE(come(61, 200, 0));    // 130 and 71.
  CHECK(q.takes_from(p.all.back(), free_slots, at(0)) == at(1));
  CHECK(come(60, 200, 0));
  CHECK(q.next_short(1000, free_slots, at(0)).group.empty());
  CHECK(numbers(q.next(free_slots, at(0)).group) == list{1});
  // It is still promised, and under way for 50 ms.
  q.note_work(p.all[0], 0ms);
  CHECK_FALSE(come(1, 100, 10, 40ms));
  CHECK(numbers(q.next(free_slots, at(50)).group) == list{3});
  q.settle(p.all[0]);
  q.settle(p.all[2]);
  CHECK(come(30, 140, 60));  // 40, 30 and 70.
  CHECK(q.erase(p.all[4]));
  CHECK(come(20, 130, 60));  // 30, 40 and 70: by 200.
  CHECK_FALSE(come(1, 130, 60));
  CHECK(numbers(q.next(free_slots, at(60)).group) == list{10});
  // Without a deadline nothing is promised: it comes last.
  sequence& none = p.add(5000);
  CHECK(q.can_take(none, free_slots, at(60)));
  q.push(none);
  CHECK(q.takes_from(none, free_slots, at(60)) == never);
}

TEST_CASE("no group starts that is provably late, none is too large, and nobody is lost") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const bool drops = !random.one_in(4);
    const slo_options o{.between_tokens = 1ms * (20 + random.below(100)),
                        .defer = random.one_in(2),
                        .typical_prompt = 1 + random.below(30U),
                        .reserve = 1ms * random.below(20),
                        .await_slot = random.one_in(2),
                        .target_tokens = random.one_in(2) ? 0U : random.below(100U),
                        .drop_late = drops};
    const prefill_limits limits{.max_rows = 1 + random.below(6U),
                                .max_waste = 0.25 * random.below(5),
                                .max_positions = random.below(300U)};
    const slo_admission policy{o, l};
    prefill_queue<slo_admission<>> q{limits, policy};
    prompts p;
    std::set<std::uint64_t> out;
    std::int64_t now = 0;
    for (int n = 0; n < 300; ++n) {
      now += random.below(20);
      if (random.one_in(2)) {
        q.push(
            p.add(1 + random.below(40U), random.one_in(10) ? never : at(now + random.below(300))));
        p.all.back().priority = static_cast<std::uint8_t>(random.below(2U));
      }
      if (random.one_in(30) && !p.all.empty()) {
        sequence& s = p.all[random.below(p.all.size())];
        if (q.erase(s)) REQUIRE(out.insert(s.number).second);
      }
      const decode_load load{.live = 1 + random.below(5U),
                             .room = random.below(5U),
                             .behind = random.below(2U),
                             .iteration = 1ms * random.below(60),
                             .departure_gap = 1ms * random.below(10),
                             .is_coupled = random.one_in(3)};
      const prefill_decision d = q.next(load, at(now));
      REQUIRE((drops || d.late.empty()));
      for (const sequence* s : d.late) REQUIRE(out.insert(s->number).second);
      prefill_shape shape;
      time_point by = never;
      for (const sequence* s : d.group) {
        REQUIRE(out.insert(s->number).second);
        ++shape.rows;
        shape.longest = std::max(shape.longest, s->prompt);
        shape.tokens += s->prompt;
        by = std::min(by, s->first_token_by);
      }
      REQUIRE(shape.rows <= limits.max_rows);
      if (drops && shape.rows > 0) {
        REQUIRE(policy.can_meet(shape, by, load, at(now)));
        REQUIRE(policy.can_seat(shape, load));
      }
      if (d.group.empty() && !q.empty()) REQUIRE(d.wake > at(now));
    }
    // Given slots and time all are had.
    for (int n = 0; n < 1000 && !q.empty(); ++n) {
      now += 1000;
      const prefill_decision d = q.next(free_slots, at(now));
      for (const auto& part : {d.group, d.late}) {
        for (const sequence* s : part) REQUIRE(out.insert(s->number).second);
      }
    }
    REQUIRE(out.size() == p.all.size());
  }
}

}  // namespace
}  // namespace cohort::kv::prefill_queue_test
