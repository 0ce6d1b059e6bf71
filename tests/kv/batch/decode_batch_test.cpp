// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/decode_batch.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <support/random_source.hpp>

#include <kv/tagged_memory.hpp>

namespace cohort::kv::decode_batch_test {
namespace {
using test::cell;
using test::random_source;

constexpr logical_column zero = column_window::origin;

prepared fresh(std::uint64_t id, std::uint32_t prompt) {
  return {.id = request_id{id}, .storage = id, .prompt = prompt, .length = prompt, .produced = 1};
}

prepared raw(std::uint64_t id, std::uint32_t prompt) {
  return {.id = request_id{id}, .storage = id, .prompt = prompt};
}

void produce_all(decode_batch& b) {
  for (std::uint32_t i = 0; i < b.size(); ++i) {
    if (b[i].live) b.produce(i, 0);
  }
}

TEST_CASE("an embedded sequence ends where all end, and one integer is its mask") {
  decode_batch b{{.slots = 3, .columns = 8}};
  copy_plan plan;
  b.insert(0, fresh(1, 5), plan);
  CHECK(b.length() == 5);
  REQUIRE(plan.copies().size() == 1);  // To the left of column 0: physical 3 to 7.
  CHECK(plan.copies()[0] ==
        column_copy{
            .kind = copy_kind::enter, .to_slot = 0, .to_column = 3, .count = 5, .storage = 1});
  plan.clear();
  b.insert(1, fresh(2, 2), plan);  // m <= L: the window stays.
  CHECK(b.length() == 5);
  CHECK(plan.copies()[0].to_column == 6);
  plan.clear();
  b.insert(2, fresh(3, 7), plan);  // m > L: it grows on the left, and nobody moves.
  CHECK(b.length() == 7);
  CHECK(plan.copies().size() == 1);
  CHECK(plan.capacity() == 0);
  CHECK(b[0].start == zero - 5);
  CHECK(b[1].start == zero - 2);
  CHECK(b[2].start == zero - 7);
  CHECK(b.columns_written() == 14);
  CHECK(b.columns_moved() == 0);
}

TEST_CASE("a step appends one column for all, and release is what is left of the window") {
  decode_batch b{{.slots = 2, .columns = 16}};
  copy_plan plan;
  b.insert(0, fresh(1, 9), plan);
  b.insert(1, fresh(2, 3), plan);
  plan.clear();
  const appended_columns c = b.step(plan);
  CHECK(c.first == zero);
  CHECK(c.count == 1);
  CHECK(plan.empty());
  CHECK(b.length() == 10);
  CHECK(b[0].who.length == 10);
  b.produce(0, 77);
  b.produce(1, 78);
  CHECK(b[0].who.pending == 77);
  CHECK(obeys_counting_law(b[1].who));
  CHECK(b.remove(0).produced == 2);
  CHECK(b.length() == 4);
  CHECK(b.live() == 1);
  CHECK(b.free_slot() == 0);
  b.remove(1);
  CHECK(b.length() == 0);
  b.step(plan);
  CHECK(b.length() == 0);
}

TEST_CASE("growth copies the rows into twice the memory, then appends") {
  decode_batch b{{.slots = 1, .columns = 4}};
  copy_plan plan;
  b.insert(0, fresh(1, 4), plan);
  plan.clear();
  b.step(plan);  // 5 columns do not fit in 4.
  CHECK(plan.capacity() == 8);
  // Logical −4 to −1: physical 0 to 3 of 4, and 4 to 7 of 8.
  REQUIRE(plan.copies().size() == 1);
  CHECK(plan.copies()[0] ==
        column_copy{.kind = copy_kind::resize, .from_column = 0, .to_column = 4, .count = 4});
  CHECK(b.columns_moved() == 4);
  CHECK(b.columns_written() == 5);
}

TEST_CASE("shaping leaves holes in old rows and aligns new ones at the end") {
  // As in the example: 5 columns run, prompts of 2 and 4 come in.
  decode_batch b{{.slots = 3, .columns = 16}};
  copy_plan plan;
  b.insert(0, fresh(1, 5), plan);
  const shaped_entry entries[] = {{1, raw(2, 2)}, {2, raw(3, 4)}};
  const appended_columns c = b.shape(entries, plan);
  CHECK(c.first == zero);
  CHECK(c.count == 4);
  CHECK(b.length() == 9);  // 5 + 4, of which row 0 owns 6.
  CHECK(b[0].who.length == 6);
  REQUIRE(b[0].holes.size() == 1);
  CHECK(b[0].holes[0] == column_hole{zero, zero + 3});
  CHECK(b[1].start == zero + 2);
  CHECK(b[1].who.length == 2);
  CHECK(b[2].start == zero);
  produce_all(b);
  CHECK(obeys_counting_law(b[0].who));
  CHECK(obeys_counting_law(b[1].who));
  CHECK(b[1].who.produced == 1);
  // A prompt of one token is a plain step: no hole.
  b.remove(1);
  const shaped_entry one[] = {{1, raw(4, 1)}};
  b.shape(one, plan);
  CHECK(b[0].holes.size() == 1);
  CHECK(b.length() == 10);
}

TEST_CASE("preemption packs own columns alone, so that holes vanish") {
  decode_batch b{{.slots = 2, .columns = 16}};
  copy_plan plan;
  b.insert(0, fresh(1, 3), plan);
  const shaped_entry entry[] = {{1, raw(2, 4)}};
  b.shape(entry, plan);
  produce_all(b);
  CHECK(b.span(0) == 7);
  plan.clear();
  const prepared out = b.preempt(0, 99, kv_place::host, plan);
  CHECK(out.length == 4);
  CHECK(out.storage == 99);
  CHECK(out.where == kv_place::host);
  CHECK(out.was_running);
  CHECK(obeys_counting_law(out));
  // Logical −3 to −1 (physical 13 to 15), then 3.
  REQUIRE(plan.copies().size() == 2);
  CHECK(plan.copies()[0] == column_copy{.kind = copy_kind::leave,
                                        .from_slot = 0,
                                        .from_column = 13,
                                        .to_column = 0,
                                        .count = 3,
                                        .storage = 99});
  CHECK(plan.copies()[1].from_column == 3);
  CHECK(plan.copies()[1].to_column == 3);
  CHECK(plan.copies()[1].count == 1);
  b.insert(0, out, plan);
  CHECK(b[0].holes.empty());
  CHECK(b.span(0) == 4);
}

TEST_CASE("a pinned slot is not reused until its copy has ended") {
  decode_batch b{{.slots = 1}};
  copy_plan plan;
  b.insert(0, fresh(1, 3), plan);
  b.preempt(0, 9, kv_place::host, plan, true);
  CHECK(b.live() == 0);
  CHECK(b.free_slot() == b.size());
  CHECK_THROWS_AS(b.resize(0, plan), config_error);
  b.unpin(0);
  CHECK(b.free_slot() == 0);
}

TEST_CASE("fewer rows: those beyond move down, column by column where they are") {
  decode_batch b{{.slots = 4, .columns = 8}};
  copy_plan plan;
  b.insert(1, fresh(1, 2), plan);
  b.insert(3, fresh(2, 3), plan);
  plan.clear();
  b.resize(2, plan);
  CHECK(b.size() == 2);
  CHECK(plan.rows() == 2);
  REQUIRE(plan.copies().size() == 1);
  CHECK(plan.copies()[0] == column_copy{.kind = copy_kind::shift,
                                        .from_slot = 3,
                                        .to_slot = 0,
                                        .from_column = 5,
                                        .to_column = 5,
                                        .count = 3});
  CHECK(b[0].who.id == request_id{2});
  CHECK(b.length() == 3);
  CHECK_THROWS_AS(b.resize(1, plan), config_error);
  b.resize(5, plan);
  CHECK(b.free_slot() == 2);
}

TEST_CASE("trim gives back what the window does not need") {
  decode_batch b{{.slots = 2, .columns = 4}};
  copy_plan plan;
  b.insert(0, fresh(1, 30), plan);
  b.insert(1, fresh(2, 5), plan);
  CHECK(b.window().capacity() == 32);
  b.remove(0);
  CHECK(b.window().capacity() == 32);  // Capacity never shrinks by itself.
  plan.clear();
  b.trim(plan);
  CHECK(plan.capacity() == 8);
  CHECK(plan.copies().size() == 1);
  b.remove(1);
  b.trim(plan);
  CHECK(b.window().capacity() == 4);
}

TEST_CASE("slots must be 1 to 65536") {
  CHECK_THROWS_AS((decode_batch{{.slots = 0}}), config_error);
  CHECK_THROWS_AS((decode_batch{{.slots = 65537}}), config_error);
  CHECK_THROWS_AS((decode_batch{{.slots = 1, .columns = 5}}), config_error);
}

/// A batch with its memory, and what every sequence should look like: kept apart from the batch.
struct machine {
  struct truth {
    std::uint32_t prompt;
    std::uint32_t length;
    std::uint32_t produced;
    token_id pending;
  };

  machine(std::uint32_t slots, std::uint32_t columns, column_layout layout)
      : batch{{.slots = slots, .columns = columns, .layout = layout}},
        memory{columns},
        first_columns{columns} {}

  void run() {
    memory.run(plan);
    plan.clear();
  }
  /// The iteration after its columns were appended: each row's token gets its column.
  void compute(appended_columns c, random_source& random) {
    run();
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      const decode_slot& s = batch[i];
      if (!s.live) continue;
      truth& t = known.at(s.who.id.value());
      if (t.produced == 0) {  // Its prompt is in this block.
        t.length = t.prompt;
        for (std::uint32_t p = 0; p < t.prompt; ++p) {
          memory.at(i, batch.window().physical(c.first + c.count - t.prompt + p)) = {
              s.who.id.value(), p};
        }
      } else {
        memory.at(i, batch.window().physical(c.first + c.count - 1)) = {s.who.id.value(), t.length};
        ++t.length;
      }
      const auto token = static_cast<token_id>(random.below(1000U));
      batch.produce(i, token);
      ++t.produced;
      t.pending = token;
    }
  }
  void check() {
    std::uint64_t longest = 0;
    std::uint32_t live = 0;
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      const decode_slot& s = batch[i];
      if (!s.live) continue;
      ++live;
      const truth& t = known.at(s.who.id.value());
      // I4, I6: what it is does not depend on the others.
      REQUIRE(s.who.length == t.length);
      REQUIRE(s.who.produced == t.produced);
      REQUIRE(s.who.pending == t.pending);
      REQUIRE(t.length == t.prompt + t.produced - 1);
      // I2: its columns, in order, hold its positions without gap; the last is the batch's last.
      const std::vector<cell> own = memory.own(batch, i);
      REQUIRE(own.size() == t.length);
      for (std::size_t p = 0; p < own.size(); ++p) {
        REQUIRE(own[p] == cell{s.who.id.value(), static_cast<std::int64_t>(p)});
      }
      column_run last;
      std::size_t runs = 0;
      batch.for_each_run(i, [&](column_run r) {
        last = r;
        ++runs;
      });
      REQUIRE(last.first + last.count - 1 == batch.window().physical(batch.window().end() - 1));
      if (s.holes.empty()) {
        REQUIRE(runs <= (batch.window().layout() == column_layout::ring ? 2 : 1));
        REQUIRE(batch.span(i) == t.length);
      }
      longest = std::max(longest, batch.window().end() - s.start);
    }
    // I3.
    REQUIRE(batch.live() == live);
    REQUIRE(batch.length() == longest);
    REQUIRE(batch.length() <= batch.window().capacity());
    REQUIRE(memory.columns() == batch.window().capacity());
    // I7.
    REQUIRE(batch.columns_moved() <= 2 * batch.columns_written() + first_columns);
  }
  std::optional<std::uint32_t> any(random_source& random, bool live) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < batch.size(); ++i) {
      if (live ? batch[i].live : batch.is_free(i)) found.push_back(i);
    }
    if (found.empty()) return std::nullopt;
    return found[random.below(found.size())];
  }

  decode_batch batch;
  test::tagged_memory memory;
  std::uint32_t first_columns;
  copy_plan plan;
  std::map<std::uint64_t, truth> known;
  std::vector<prepared> aside;
  std::uint64_t next_id = 1;
};

void fuzz(std::uint64_t seed, column_layout layout, bool shaping, bool scaling, int operations) {
  CAPTURE(seed);
  CAPTURE(shaping);
  CAPTURE(scaling);
  random_source random{seed};
  machine m{1 + random.below(5U), 4, layout};
  for (int n = 0; n < operations; ++n) {
    switch (random.below(scaling ? 9 : 7)) {
      case 0:
      case 1:  // Insert: what was preempted, or a new one.
        if (const auto slot = m.any(random, false)) {
          prepared p;
          if (!m.aside.empty() && random.one_in(2)) {
            const auto which = random.below(m.aside.size());
            p = m.aside[which];
            m.aside.erase(m.aside.begin() + static_cast<std::ptrdiff_t>(which));
          } else {
            const std::uint64_t id = m.next_id++;
            p = fresh(id, 1 + random.below(29U));
            m.known[id] = {p.prompt, p.prompt, 1, 0};
            m.memory.prefill(id, id, p.prompt);
          }
          m.batch.insert(*slot, p, m.plan);
          m.run();
        }
        break;
      case 2:
        if (shaping) {
          std::vector<shaped_entry> entries;
          for (std::uint32_t i = 0; i < m.batch.size(); ++i) {
            if (!m.batch.is_free(i) || random.one_in(2)) continue;
            const std::uint64_t id = m.next_id++;
            const std::uint32_t prompt = 1 + random.below(29U);
            m.known[id] = {prompt, 0, 0, 0};
            entries.push_back({i, raw(id, prompt)});
          }
          m.compute(m.batch.shape(entries, m.plan), random);
          break;
        }
        [[fallthrough]];
      case 3:
      case 4:
        m.compute(m.batch.step(m.plan), random);
        break;
      case 5:
        if (const auto slot = m.any(random, true)) {
          const prepared p = m.batch.remove(*slot);
          CHECK(m.known.at(p.id.value()).produced == p.produced);
          if (random.one_in(2)) {  // Wiped or not, nobody may notice.
            for (std::uint32_t c = 0; c < m.memory.columns(); ++c) m.memory.at(*slot, c) = {};
          }
        }
        break;
      case 6:
        if (const auto slot = m.any(random, true)) {
          m.aside.push_back(
              m.batch.preempt(*slot, 1'000'000 + m.next_id++, kv_place::host, m.plan));
          m.run();
        }
        break;
      case 7: {
        const std::uint32_t rows = 1 + random.below(6U);
        if (rows < m.batch.live()) break;
        m.batch.resize(rows, m.plan);
        m.run();
        break;
      }
      default:
        m.batch.trim(m.plan);
        m.run();
        break;
    }
    // Trimming and regrowing is not bounded by what was written; the fuzz with it skips that law.
    if (scaling) m.first_columns = 1U << 30U;
    m.check();
  }
}

TEST_CASE("invariants I2 to I8 hold after every operation of random sequences") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    for (const column_layout layout : {column_layout::ring, column_layout::line}) {
      fuzz(seed, layout, false, false, 300);
      fuzz(seed, layout, true, false, 150);
      fuzz(seed, layout, true, true, 200);
    }
  }
}

TEST_CASE("a long run moves few columns for each one written") {
  random_source random{11};
  decode_batch b{{.slots = 8, .columns = 64}};
  copy_plan plan;
  std::vector<std::uint32_t> left(8, 0);
  for (int n = 0; n < 20000; ++n) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (b.is_free(i)) {
        b.insert(i, fresh(1, 1 + random.below(512U)), plan);
        left[i] = 1 + random.below(256U);
      }
    }
    b.step(plan);
    for (std::uint32_t i = 0; i < 8; ++i) {
      b.produce(i, 0);
      if (--left[i] == 0) b.remove(i);
    }
    plan.clear();
  }
  CHECK(b.window().capacity() == 1024);        // Never more than max(prompt + output), rounded up.
  CHECK(b.columns_moved() < 64 + 128 + 1024);  // Each doubling once.
}

}  // namespace
}  // namespace cohort::kv::decode_batch_test
