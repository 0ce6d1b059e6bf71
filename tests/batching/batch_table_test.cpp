// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/batch_table.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::batching::batch_table_test {
namespace {

using ids = std::vector<batch_id>;

/// Ids from the oldest row on; checked to be the same from the latest row back.
ids order(batch_table& t) {
  ids forward;
  for (const batch_row* r = t.oldest(); r != nullptr; r = t.after(*r)) forward.push_back(r->id);
  ids back;
  for (const batch_row* r = t.latest(); r != nullptr; r = t.before(*r)) back.push_back(r->id);
  std::ranges::reverse(back);
  CHECK(forward == back);
  return forward;
}

TEST_CASE("rows stand in order of creation, and where they are put") {
  batch_table t{{.stages = 2, .batch_max = 4, .max_rows = 4}};
  CHECK(t.empty());
  CHECK(t.latest() == nullptr);
  const batch_id a = t.add().id;
  const batch_id b = t.add().id;
  const batch_id child = t.add(&t[b]).id;
  CHECK(order(t) == ids{a, child, b});
  t.remove(t[a]);
  CHECK(order(t) == ids{child, b});
  CHECK(t.rows() == 2);
  CHECK(t.free_rows() == 2);
}
TEST_CASE("the id of a row that has ended names none, although its memory is used again") {
  batch_table t{{.stages = 1, .batch_max = 1, .max_rows = 1}};
  const batch_id first = t.add().id;
  t.remove(t[first]);
  const batch_id second = t.add().id;
  CHECK(first != second);
  CHECK(first < second);
  CHECK(t.find(first) == nullptr);
  CHECK(t.find(second) == t.latest());
  CHECK(t.find(no_batch) == nullptr);
}
TEST_CASE("a new row has zero counts, whatever its memory held") {
  batch_table t{{.stages = 3, .batch_max = 2, .max_rows = 1}};
  batch_row& used = t.add();
  used.issued[0] = used.completed[2] = 2;
  t.remove(used);
  const batch_row& fresh = t.add();
  CHECK(std::ranges::all_of(fresh.issued, [](std::uint32_t c) { return c == 0; }));
  CHECK(std::ranges::all_of(fresh.completed, [](std::uint32_t c) { return c == 0; }));
  CHECK(fresh.slots.size() == 2);
}
TEST_CASE("a copy has memory of its own") {
  batch_table t{{.stages = 2, .batch_max = 2, .max_rows = 2}};
  const batch_id row = t.add().id;
  t[row].issued[0] = 1;
  batch_table copy = t;
  copy[row].issued[0] = 2;
  copy[row].slots[0].live = true;
  copy.add();
  CHECK(t[row].issued[0] == 1);
  CHECK_FALSE(t[row].slots[0].live);
  CHECK(t.rows() == 1);
  t = std::move(copy);
  CHECK(t[row].issued[0] == 2);
  CHECK(t.rows() == 2);
}
TEST_CASE("rows have counts and slots of their own") {
  batch_table t{{.stages = 2, .batch_max = 2, .max_rows = 3}};
  std::uint32_t next = 0;
  for (int i = 0; i < 3; ++i) {
    batch_row& r = t.add();
    for (std::uint32_t& c : r.completed) c = next++;
    for (std::uint32_t& c : r.issued) c = next++;
    for (slot& s : r.slots) s.judged = next++;
  }
  next = 0;
  for (const batch_row* r = t.oldest(); r != nullptr; r = t.after(*r)) {
    for (const std::uint32_t c : r->completed) CHECK(c == next++);
    for (const std::uint32_t c : r->issued) CHECK(c == next++);
    for (const slot& s : r->slots) CHECK(s.judged == next++);
  }
  CHECK(next == 18);
}
TEST_CASE("a row has entered the last stage that it was issued to") {
  batch_table t{{.stages = 4, .batch_max = 2, .max_rows = 1}};
  batch_row& r = t.add();
  r.issued[0] = r.completed[0] = 2;
  CHECK(r.entered() == 0);
  r.issued[1] = 1;  // A part of it has gone ahead.
  CHECK(r.entered() == 1);
  r.completed[1] = r.issued[2] = r.issued[3] = 1;
  CHECK(r.entered() == 3);
}
TEST_CASE("soundness is the printed invariants") {
  batch_table t{{.stages = 2, .batch_max = 4, .max_rows = 1}};
  batch_row& r = t.add();
  CHECK_FALSE(t.is_sound(r));  // Empty.
  r.size = r.live = r.issued[0] = 2;
  r.slots[0].live = r.slots[1].live = true;
  CHECK(t.is_sound(r));
  r.issued[1] = 1;  // Issued further than completed.
  CHECK_FALSE(t.is_sound(r));
  r.completed[0] = 1;
  CHECK(t.is_sound(r));
  r.completed[1] = 2;  // Completed further than issued.
  CHECK_FALSE(t.is_sound(r));
  r.completed[1] = 0;
  r.base = 3;  // Beyond its buffers.
  CHECK_FALSE(t.is_sound(r));
  r.base = 0;
  r.live = 1;
  CHECK_FALSE(t.is_sound(r));
}
TEST_CASE("sizes outside their range are refused") {
  CHECK(test::gist_of<config_error>([&] { (void)batch_table({.stages = 0}); }) ==
        "batch_table: stages ... 1 to 256");
  CHECK(test::gist_of<config_error>([&] { (void)batch_table({.batch_max = 0}); }) ==
        "batch_table: batch_max ... 1 to 65536");
  CHECK(test::gist_of<config_error>([&] { (void)batch_table({.max_rows = 65537}); }) ==
        "batch_table: max_rows ... 1 to 65536");
}
TEST_CASE("random additions and removals agree with a list") {
  test::random_source random{1};
  batch_table t{{.stages = 2, .batch_max = 2, .max_rows = 8}};
  ids expected;
  ids ended;
  for (int step = 0; step < 5000; ++step) {
    const bool adds = t.free_rows() > 0 && (expected.empty() || random.one_in(2));
    const std::size_t i = expected.empty() ? 0 : random.below(expected.size());
    const auto place = expected.begin() + static_cast<std::ptrdiff_t>(i);
    if (adds && !expected.empty() && random.one_in(3)) {
      expected.insert(place, t.add(&t[*place]).id);
    } else if (adds) {
      expected.push_back(t.add().id);
    } else {
      t.remove(t[*place]);
      ended.push_back(*place);
      expected.erase(place);
    }
    REQUIRE(order(t) == expected);
    REQUIRE(t.rows() + t.free_rows() == 8);
  }
  CHECK(std::ranges::all_of(ended, [&](batch_id id) { return t.find(id) == nullptr; }));
}

}  // namespace
}  // namespace cohort::batching::batch_table_test
