// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/meta_ops.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::batching::meta_ops_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct refusals : null_batch_observer {
  std::vector<std::pair<meta_op, meta_refusal>> seen;
  void refused(meta_op what, meta_refusal why, time_point) noexcept {
    seen.emplace_back(what, why);
  }
};
using ops = meta_ops<refusals>;

std::vector<staged_request> requests(std::uint32_t n, std::uint64_t first = 0) {
  std::vector<staged_request> r(n);
  for (std::uint32_t i = 0; i < n; ++i) r[i].tag = first + i;
  return r;
}
std::vector<std::uint32_t> counts(std::span<const std::uint32_t> c) { return {c.begin(), c.end()}; }
using list = std::vector<std::uint32_t>;
constexpr table_options four_stages{.stages = 4, .batch_max = 64, .max_rows = 16};

TEST_CASE("figure 8: a row is stretched, held, merged and split") {
  ops o{four_stages};
  const batch_id row = o.make(requests(2), t0).batch;  // 1
  CHECK(row == batch_id{0});
  REQUIRE(o.queue(0).size() == 1);
  CHECK(o.queue(0)[0] == item{row, 0, 2});
  CHECK(o.table()[row].size == 2);
  CHECK(counts(o.table()[row].completed) == list{0, 0, 0, 0});

  CHECK(o.on_complete(0, o.take(0), t0) == progress::whole);  // 2
  REQUIRE(o.queue(1).size() == 1);
  CHECK(o.queue(1)[0] == item{row, 0, 2});
  CHECK(counts(o.table()[row].completed) == list{2, 0, 0, 0});

  const item first = o.take(1);  // 3
  CHECK(o.stretch(requests(2, 2), t0));
  REQUIRE(o.queue(0).size() == 1);
  CHECK(o.queue(0)[0] == item{row, 2, 2});
  CHECK(o.table()[row].size == 4);

  CHECK(o.on_complete(1, first, t0) == progress::held);  // 4
  CHECK(o.queue(2).empty());
  CHECK(counts(o.table()[row].completed) == list{2, 2, 0, 0});

  CHECK(o.on_complete(0, o.take(0), t0) == progress::followed);  // 5
  REQUIRE(o.queue(1).size() == 1);
  CHECK(o.queue(1)[0] == item{row, 2, 2});
  CHECK(counts(o.table()[row].completed) == list{4, 2, 0, 0});

  CHECK(o.on_complete(1, o.take(1), t0) == progress::whole);  // 6
  REQUIRE(o.queue(2).size() == 1);
  CHECK(o.queue(2)[0] == item{row, 0, 4});
  CHECK(counts(o.table()[row].completed) == list{4, 4, 0, 0});

  CHECK(o.finish(2, o.take(2), t0) == progress::whole);  // 7
  CHECK(o.split(2, row, std::array{2U, 2U}, t0));
  REQUIRE(o.queue(3).size() == 2);
  const batch_id c1 = o.queue(3)[0].batch;
  const batch_id c2 = o.queue(3)[1].batch;
  CHECK(o.queue(3)[0] == item{c1, 0, 2});
  CHECK(o.queue(3)[1] == item{c2, 0, 2});
  CHECK(std::set{row, c1, c2}.size() == 3);
  CHECK(o.table().find(row) == nullptr);
  CHECK(o.table().rows() == 2);
  for (const batch_id c : {c1, c2}) {
    CHECK(o.table()[c].size == 2);
    CHECK(counts(o.table()[c].completed) == list{2, 2, 2, 0});
    CHECK(o.table()[c].no_stretch);
    CHECK(o.table()[c].parent == row);
  }
  CHECK(o.table()[c1].base == 0);
  CHECK(o.table()[c2].base == 2);
  CHECK(o.table()[c2].slots[1].request.tag == 3);

  CHECK(o.stretch(requests(1, 4), t0).refusal == meta_refusal::no_stretch);  // 8
  CHECK(o.make(requests(1, 4), t0));
  CHECK(o.table().rows() == 3);
}

TEST_CASE("race: a straggler that leaves stage 1 while the first part is in stage 2 goes alone") {
  ops o{four_stages};
  const batch_id row = o.make(requests(2), t0).batch;
  o.on_complete(0, o.take(0), t0);
  const item first = o.take(1);
  o.stretch(requests(2, 2), t0);
  CHECK(o.on_complete(0, o.take(0), t0) == progress::followed);
  REQUIRE(o.queue(1).size() == 1);
  CHECK(o.queue(1)[0] == item{row, 2, 2});  // Not (0, 4): the first two are in flight.
  CHECK(o.on_complete(1, first, t0) == progress::held);
  CHECK(o.queue(2).empty());
  CHECK(o.on_complete(1, o.take(1), t0) == progress::whole);
  REQUIRE(o.queue(2).size() == 1);
  CHECK(o.queue(2)[0] == item{row, 0, 4});
}

TEST_CASE("stretch is refused with its reason") {
  ops o{{.stages = 3, .batch_max = 4, .max_rows = 8}, {.longest_wait = 10ms}};
  CHECK(o.stretch(requests(1), t0).refusal == meta_refusal::not_latest);  // No row.
  const batch_id row = o.make(requests(2), t0).batch;
  CHECK(o.can_stretch(3, t0) == meta_refusal::too_large);  // bs + n == bs_max + 1.
  CHECK(o.can_stretch(2, t0) == meta_refusal::none);       // bs + n == bs_max.
  CHECK(o.can_stretch(1, t0 + 10ms) == meta_refusal::too_old);
  CHECK(o.can_stretch(1, t0 + 10ms - 1ns) == meta_refusal::none);
  CHECK(o.can_stretch(0, t0) == meta_refusal::empty);

  SUBCASE("a row that is not the latest") {
    const batch_id young = o.make(requests(1, 2), t0).batch;
    CHECK(o.can_stretch(o.table()[row], 1, t0) == meta_refusal::not_latest);
    CHECK(o.can_stretch(o.table()[young], 1, t0) == meta_refusal::none);
    CHECK(o.stretch(requests(1, 3), t0).batch == young);
  }
  SUBCASE("a row that has entered the last stage") {
    o.on_complete(0, o.take(0), t0);
    CHECK(o.can_stretch(1, t0) == meta_refusal::none);
    o.on_complete(1, o.take(1), t0);
    CHECK(o.can_stretch(1, t0) == meta_refusal::issued_too_far);
  }
  SUBCASE("a row of which a split is foreseen") {
    o.make(requests(1, 2), t0, true);
    CHECK(o.can_stretch(1, t0) == meta_refusal::no_stretch);
  }
  SUBCASE("the last child of the latest row counts as the latest") {
    o.finish(0, o.take(0), t0);
    REQUIRE(o.split(0, row, std::array{1U, 1U}, t0));
    CHECK(o.can_stretch(1, t0) == meta_refusal::no_stretch);
  }
  SUBCASE("children of an older row do not become the latest") {
    const batch_id young = o.make(requests(1, 2), t0).batch;
    o.finish(0, o.take(0), t0);
    REQUIRE(o.split(0, row, std::array{1U, 1U}, t0));
    CHECK(o.table().latest()->id == young);
    CHECK(o.can_stretch(1, t0) == meta_refusal::none);
  }
  CHECK(o.observer().seen.front() == std::pair{meta_op::stretch, meta_refusal::not_latest});
}

TEST_CASE(
    "a row may grow in its last stage where that is allowed, but not with one stage by default") {
  ops wide{{.stages = 2, .batch_max = 4, .max_rows = 4}, {.last_stage = 1}};
  wide.make(requests(1), t0);
  wide.on_complete(0, wide.take(0), t0);
  CHECK(wide.can_stretch(1, t0) == meta_refusal::none);
  ops one{{.stages = 1, .batch_max = 4, .max_rows = 4}};
  one.make(requests(1), t0);
  CHECK(one.can_stretch(1, t0) == meta_refusal::issued_too_far);
}

TEST_CASE("a row may grow in the last stage that is allowed, and not beyond it") {
  for (const std::uint32_t last : {0U, 1U, 2U}) {
    CAPTURE(last);
    ops o{four_stages, {.last_stage = last}};
    o.make(requests(1), t0);
    for (std::uint32_t s = 0; s < 3; ++s) {
      CAPTURE(s);
      CHECK(o.can_stretch(1, t0) ==
            (s <= last ? meta_refusal::none : meta_refusal::issued_too_far));
      o.on_complete(s, o.take(s), t0);
    }
    CHECK(o.can_stretch(1, t0) == meta_refusal::issued_too_far);
  }
}
TEST_CASE("a row is as old as its making, and padded to the bucket that it was made for") {
  ops o{four_stages, {.longest_wait = 10ms}};
  const batch_id row = o.make(requests(1), t0 + 5ms, false, 2).batch;
  CHECK(o.table()[row].time == t0 + 5ms);
  CHECK(o.table()[row].bucket == 2);
  CHECK(o.can_stretch(1, t0 + 14ms) == meta_refusal::none);
  CHECK(o.can_stretch(1, t0 + 15ms) == meta_refusal::too_old);
}

TEST_CASE("two stretches behind one straggler merge to one push") {
  ops o{four_stages};
  const batch_id row = o.make(requests(2), t0).batch;
  o.on_complete(0, o.take(0), t0);
  const item first = o.take(1);
  o.stretch(requests(1, 2), t0);
  const item straggler = o.take(0);  // In stage 1.
  o.stretch(requests(1, 3), t0);
  o.stretch(requests(1, 4), t0);
  REQUIRE(o.queue(0).size() == 1);
  CHECK(o.queue(0)[0] == item{row, 3, 2});  // Those who wait there are one item.
  CHECK(o.on_complete(1, first, t0) == progress::held);
  CHECK(o.on_complete(0, straggler, t0) == progress::held);
  CHECK(o.queue(1).empty());
  CHECK(o.on_complete(0, o.take(0), t0) == progress::followed);
  REQUIRE(o.queue(1).size() == 1);
  CHECK(o.queue(1)[0] == item{row, 2, 3});
  o.on_complete(1, o.take(1), t0);
  CHECK(o.queue(2)[0] == item{row, 0, 5});
}

TEST_CASE("a cancelled straggler releases the held part without being run") {
  ops o{four_stages};
  const batch_id row = o.make(requests(2), t0).batch;
  o.on_complete(0, o.take(0), t0);
  const item first = o.take(1);
  o.stretch(requests(1, 2), t0);
  o.on_complete(1, first, t0);
  CHECK(o.cancel(row, 2, t0) == meta_refusal::none);
  CHECK(o.cancel(row, 2, t0) == meta_refusal::no_such_slot);
  const item straggler = o.take(0);
  CHECK(o.is_dead(straggler));
  o.on_complete(0, straggler, t0);
  const item again = o.take(1);
  CHECK(o.is_dead(again));
  CHECK(o.on_complete(1, again, t0) == progress::whole);
  REQUIRE(o.queue(2).size() == 1);
  CHECK(o.trimmed(o.queue(2)[0]) == item{row, 0, 2});
  CHECK(o.live(o.queue(2)[0]) == 2);
}

TEST_CASE("a row of 5 splits into 2 and 3, and a part of 1 does not split") {
  ops o{four_stages};
  const batch_id row = o.make(requests(5), t0).batch;
  o.finish(0, o.take(0), t0);
  CHECK(o.split(0, row, std::array{2U, 2U}, t0).refusal == meta_refusal::bad_sizes);
  CHECK(o.split(0, row, std::array{5U}, t0).refusal == meta_refusal::bad_sizes);
  CHECK(o.split(0, row, std::array{5U, 0U}, t0).refusal == meta_refusal::bad_sizes);
  CHECK(o.split(1, row, std::array{2U, 3U}, t0).refusal == meta_refusal::not_at_boundary);
  CHECK(o.split(3, row, std::array{2U, 3U}, t0).refusal == meta_refusal::not_at_boundary);
  CHECK(o.split(0, batch_id{77}, std::array{2U, 3U}, t0).refusal == meta_refusal::no_such_batch);
  REQUIRE(o.split(0, row, std::array{2U, 3U}, t0));
  CHECK(o.queue(1)[0].count == 2);
  CHECK(o.queue(1)[1].count == 3);
  const batch_id c = o.queue(1)[0].batch;
  o.finish(1, o.take(1), t0);
  REQUIRE(o.split(1, c, std::array{1U, 1U}, t0));  // Splits nest.
  CHECK(o.table().rows() == 3);
  const item one = o.take(2);
  o.finish(2, one, t0);
  CHECK(o.split(2, one.batch, std::array{1U, 0U}, t0).refusal == meta_refusal::bad_sizes);
}

TEST_CASE("a part of a part has the buffers, the age and the padding of the first row") {
  ops o{four_stages};
  const batch_id row = o.make(requests(6), t0 + 3ms, false, 1).batch;
  o.table()[row].set = 2;
  o.finish(0, o.take(0), t0 + 4ms);
  REQUIRE(o.split(0, row, std::array{2U, 4U}, t0 + 4ms, true));
  const batch_id first = o.queue(1)[0].batch;
  const item second = o.take(1, 1);
  o.finish(1, second, t0 + 5ms);
  REQUIRE(o.split(1, second.batch, std::array{1U, 3U}, t0 + 5ms));
  REQUIRE(o.queue(2).size() == 2);
  const batch_row& r = o.table()[o.queue(2)[1].batch];
  CHECK(r.size == 3);
  CHECK(r.live == 3);
  CHECK(r.base == 3);  // Behind the two of the first part and the one before it.
  CHECK(r.slots[0].request.tag == 3);
  CHECK(r.set == 2);
  CHECK(r.bucket == 1);
  CHECK(r.time == t0 + 3ms);
  CHECK(r.order == 0);
  CHECK(r.parent == second.batch);
  CHECK(r.serial);  // As its parent, although this split was not to be.
  CHECK(o.has_earlier_sibling(r.id));
  CHECK(
      o.has_earlier_sibling(o.queue(2)[0].batch));  // A child of the first row, not of the second.
  CHECK_FALSE(o.has_earlier_sibling(first));
}
TEST_CASE("split is refused after a part has gone ahead, and when the table is full") {
  ops o{{.stages = 3, .batch_max = 8, .max_rows = 3}};
  const batch_id row = o.make(requests(4), t0).batch;
  o.finish(0, o.take(0), t0);
  CHECK(o.split(0, row, std::array{1U, 1U, 2U}, t0).refusal == meta_refusal::table_full);
  o.hand_over(0, row, t0);
  CHECK(o.split(0, row, std::array{2U, 2U}, t0).refusal == meta_refusal::not_at_boundary);
  CHECK(o.make({}, t0).refusal == meta_refusal::empty);
  CHECK(o.make(requests(9), t0).refusal == meta_refusal::too_large);
  o.make(requests(1), t0);
  o.make(requests(1), t0);
  CHECK(o.make(requests(1), t0).refusal == meta_refusal::table_full);
}

TEST_CASE("compact closes the gaps of ended requests and says what moved") {
  ops o{four_stages};
  const batch_id row = o.make(requests(5, 10), t0).batch;
  o.finish(0, o.take(0), t0);
  o.end(meta_op::leave, row, 0, t0);
  o.end(meta_op::leave, row, 3, t0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;
  const batch_id c =
      o.compact(0, row, t0, [&](const batch_row&, std::uint32_t from, std::uint32_t to) {
        moves.emplace_back(from, to);
      });
  CHECK(moves == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 0}, {2, 1}, {4, 2}});
  CHECK(c != row);
  const batch_row& r = o.table()[c];
  CHECK(r.size == 3);
  CHECK(r.live == 3);
  CHECK(counts(r.completed) == list{3, 0, 0, 0});
  CHECK(r.slots[0].request.tag == 11);
  CHECK(r.slots[2].request.tag == 14);
  CHECK(r.order == 0);
  CHECK(o.can_stretch(1, t0) == meta_refusal::none);
  o.hand_over(0, c, t0);
  CHECK(o.queue(1)[0] == item{c, 0, 3});
}

TEST_CASE("gaps of a part are closed within its own slots, and it stays serial") {
  ops o{four_stages};
  const batch_id row = o.make(requests(5), t0).batch;
  o.finish(0, o.take(0), t0);
  REQUIRE(o.split(0, row, std::array{2U, 3U}, t0, true));
  const item part = o.take(1, 1);
  o.finish(1, part, t0);
  o.end(meta_op::leave, part.batch, 0, t0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> moves;
  const batch_id c =
      o.compact(1, part.batch, t0, [&](const batch_row&, std::uint32_t from, std::uint32_t to) {
        moves.emplace_back(from, to);
      });
  CHECK(moves == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{3, 2}, {4, 3}});
  CHECK(o.table()[c].base == 2);
  CHECK(o.table()[c].serial);
  CHECK(o.has_earlier_sibling(c));
}
TEST_CASE("without a free row gaps stay, and nothing moves") {
  ops o{{.stages = 2, .batch_max = 4, .max_rows = 1}};
  const batch_id row = o.make(requests(3), t0).batch;
  o.finish(0, o.take(0), t0);
  o.end(meta_op::leave, row, 0, t0);
  CHECK(o.compact(0, row, t0, [](const batch_row&, std::uint32_t, std::uint32_t) {
    FAIL("nothing is to move");
  }) == row);
  CHECK(o.table()[row].size == 3);
  CHECK(o.observer().seen.back() == std::pair{meta_op::leave, meta_refusal::table_full});
}
TEST_CASE("an item is run without the unused slots at its ends") {
  ops o{four_stages};
  const batch_id row = o.make(requests(5), t0).batch;
  o.cancel(row, 0, t0);
  o.cancel(row, 2, t0);
  o.cancel(row, 4, t0);
  CHECK(o.trimmed({row, 0, 5}) == item{row, 1, 3});
  CHECK(o.trimmed({row, 0, 3}) == item{row, 1, 1});  // Slot 3 is not of this item.
  CHECK(o.live({row, 0, 5}) == 2);
}

TEST_CASE("bad options are errors") {
  CHECK(test::gist_of<config_error>([&] { (void)batch_table(table_options{.stages = 0}); }) ==
        "batch_table: stages ... 1 to 256");
  CHECK_THROWS_AS(batch_table(table_options{.batch_max = 0}), config_error);
  CHECK_THROWS_AS(batch_table(table_options{.max_rows = 0}), config_error);
  CHECK_THROWS_AS(ops(four_stages, {.last_stage = 4}), config_error);
}

TEST_CASE("queues keep order while they grow and when taken from the middle") {
  item_queue q{2};
  for (std::uint32_t i = 0; i < 40; ++i) q.push({batch_id{i}, 0, 1});
  CHECK(q.take(3).batch == batch_id{3});
  CHECK(q.take().batch == batch_id{0});
  CHECK(q.take().batch == batch_id{1});
  CHECK(q.take().batch == batch_id{2});
  CHECK(q.take().batch == batch_id{4});
  CHECK(q.size() == 35);
}

TEST_CASE("a queue that grows when its ring has come round keeps its order") {
  item_queue q{2};  // Room for 4.
  for (std::uint32_t i = 0; i < 4; ++i) q.push({batch_id{i}, 0, 1});
  q.take();
  q.take();
  for (std::uint32_t i = 4; i < 7; ++i) q.push({batch_id{i}, 0, 1});
  for (std::uint32_t i = 2; i < 7; ++i) CHECK(q.take().batch == batch_id{i});
  CHECK(q.empty());
}

TEST_CASE("random operations keep the invariants, and every request ends exactly once, in order") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t stages = 1 + random.below(5U);
    ops o{{.stages = stages, .batch_max = 6, .max_rows = 24}, {.longest_wait = 40ms}};
    std::vector<std::deque<item>> running(stages);    // One item in each stage at most.
    std::map<std::uint64_t, std::uint32_t> stage_of;  // Next stage of every request that is in.
    std::map<std::pair<batch_id, std::uint32_t>, std::uint32_t> next_start;
    std::uint64_t next_tag = 0;
    std::uint64_t accepted = 0;
    std::uint64_t ended = 0;
    time_point now = t0;
    std::map<batch_id, std::vector<std::uint32_t>> seen;
    const auto check_rows = [&] {
      for (const batch_row* r = o.table().oldest(); r != nullptr; r = o.table().after(*r)) {
        REQUIRE(o.table().is_sound(*r));
        std::vector<std::uint32_t> all = counts(r->completed);
        for (const std::uint32_t c : r->issued) all.push_back(c);
        auto& last = seen[r->id];
        last.resize(all.size());
        for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] >= last[i]);  // Never fall.
        last = all;
      }
    };
    bool draining = false;
    for (int step = 0; step < 400 || !o.table().empty(); ++step) {
      REQUIRE(step < 5000);
      draining = step >= 400;
      now += 1ms;
      const std::uint32_t choice = random.below(6U);
      if (choice == 0 && !draining) {
        const auto r = requests(1 + random.below(4U), next_tag);
        const bool grew = random.one_in(2) && o.stretch(r, now);
        if (grew || o.make(r, now, random.one_in(3))) {
          next_tag += r.size();
          accepted += r.size();
          for (const staged_request& q : r) stage_of[q.tag] = 0;
        }
      } else if (choice == 1) {
        if (batch_row* r = o.table().latest(); r != nullptr && random.one_in(3)) {
          const std::uint32_t place = random.below(r->size);
          const std::uint64_t tag = r->slots[place].request.tag;
          if (o.cancel(r->id, place, now) == meta_refusal::none) {
            REQUIRE(stage_of.erase(tag) == 1);
            ++ended;
          }
        }
      } else if (choice == 2) {
        const std::uint32_t s = random.below(stages);
        if (running[s].empty() && !o.queue(s).empty()) {
          const item i = o.take(s);
          std::uint32_t& expected = next_start[{i.batch, s}];
          REQUIRE(i.start == expected);  // Disjoint, contiguous, increasing.
          expected = i.start + i.count;
          running[s].push_back(i);
        }
      } else {
        const std::uint32_t s = random.below(stages);
        if (running[s].empty()) continue;
        const item i = running[s].front();
        running[s].pop_front();
        for (std::uint32_t k = i.start; k < i.start + i.count; ++k) {
          const slot& x = o.table()[i.batch].slots[k];
          if (!x.live) continue;
          REQUIRE(stage_of.at(x.request.tag) == s);  // Each stage once, in order.
          stage_of[x.request.tag] = s + 1;
          if (s + 1 == stages) {
            stage_of.erase(x.request.tag);
            ++ended;
          }
        }
        const progress p = o.finish(s, i, now);
        if (p == progress::ended) {
          o.remove(i.batch);
        } else if (p == progress::followed) {
          o.hand_over(s, i.batch, now);
        } else if (p == progress::whole) {
          batch_id id = i.batch;
          if (random.one_in(2)) {
            id = o.compact(s, id, now, [](const batch_row&, std::uint32_t from, std::uint32_t to) {
              REQUIRE(to < from);
            });
            if (id != i.batch) {
              for (std::uint32_t k = 0; k <= s; ++k) next_start[{id, k}] = o.table()[id].size;
            }
          }
          const batch_row& r = o.table()[id];
          const std::uint32_t part = 1 + random.below(r.size);
          const std::array sizes{part, r.size - part};
          if (!random.one_in(2) || !o.split(s, id, sizes, now)) o.hand_over(s, id, now);
        }
      }
      check_rows();
    }
    CHECK(stage_of.empty());
    CHECK(accepted == ended);
    for (std::uint32_t s = 0; s < stages; ++s) CHECK(o.queue(s).empty());
    CHECK(o.table().free_rows() == 24);
  }
}
}  // namespace
}  // namespace cohort::batching::meta_ops_test
