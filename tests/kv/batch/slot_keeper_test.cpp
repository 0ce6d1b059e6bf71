// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/slot_keeper.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>

namespace cohort::kv::slot_keeper_test {
namespace {

constexpr budget_options plenty{.high_bytes = std::numeric_limits<std::uint64_t>::max(),
                                .low_bytes = std::numeric_limits<std::uint64_t>::max(),
                                .bytes_per_column = 1};

struct counting_sink {
  void execute(const copy_plan&) noexcept { ++executed; }
  std::uint64_t allocate(sequence&, std::uint32_t) noexcept { return ++allocated; }
  void release(std::uint64_t) noexcept { ++released; }
  void finish(sequence&, finish_reason) noexcept {}
  std::uint64_t executed = 0;
  std::uint64_t allocated = 0;
  std::uint64_t released = 0;
};

sequence prefilled(std::uint64_t number, std::uint32_t prompt) {
  sequence s;
  s.number = number;
  s.prompt = prompt;
  s.who = {.prompt = prompt, .length = prompt, .produced = 1};
  return s;
}

TEST_CASE("who waits takes a slot, steps, is evicted and comes back with its tokens") {
  slot_keeper<fifo> k{{.slots = 1, .columns = 4}, plenty, 1, fifo{}};
  counting_sink sink;
  CHECK_FALSE(k.begin(sink));
  std::deque<sequence> all{prefilled(1, 3), prefilled(2, 5)};
  for (sequence& s : all) k.wait(s);
  REQUIRE(k.begin(sink));
  CHECK(all[0].state == sequence_state::running);
  CHECK(&k.in_slot(0) == &all[0]);
  CHECK(k.waiting().size() == 1);
  k.produce(0, 7);
  CHECK(all[0].who.produced == 2);
  CHECK(all[0].who.pending == 7);
  k.evict(all[0], sink);
  CHECK(sink.allocated == 1);
  CHECK(k.preemptions() == 1);
  REQUIRE(k.begin(sink));  // By number it is still the first.
  CHECK(&k.in_slot(0) == &all[0]);
  CHECK(all[0].who.length == 5);
  k.produce(0, 8);
  k.remove(0);
  k.withdraw(all[1]);
  CHECK(k.waiting().empty());
  CHECK_FALSE(k.begin(sink));
  CHECK(k.iterations() == 2);
  CHECK(k.inserts() == 2);
  CHECK(k.starved() == 0);
}

TEST_CASE("the mean stay counts the iterations of those that have not left, too") {
  slot_keeper<fifo> k{{.slots = 2, .columns = 4}, plenty, 2, fifo{}};
  counting_sink sink;
  CHECK(k.mean_stay() == 0);
  CHECK(k.cautious_stay() == 0);
  std::deque<sequence> all{prefilled(1, 3), prefilled(2, 3)};
  for (sequence& s : all) k.wait(s);
  const auto iterate = [&](int times) {
    for (int n = 0; n < times; ++n) {
      REQUIRE(k.begin(sink));
      for (std::uint32_t i = 0; i < 2; ++i) {
        if (k.batch()[i].live) k.produce(i, 1);
      }
    }
  };
  iterate(4);
  k.remove(0);
  CHECK(k.mean_stay() == 8);  // Both were there for 4, and one has left.
  CHECK(k.cautious_stay() == doctest::Approx(8 * (1 + 2 / std::sqrt(31.0 / 32))));
  iterate(32);
  k.remove(1);
  // 31 of 32 parts of the 8, 32 more, and as many parts of the first that left.
  CHECK(k.mean_stay() == doctest::Approx(39.75 / (63.0 / 32)));
  CHECK(k.cautious_stay() > k.mean_stay());
}

TEST_CASE("what was packed can be trusted once an iteration has run") {
  slot_keeper<fifo> k{{.slots = 2, .columns = 4}, plenty, 2, fifo{}};
  counting_sink sink;
  std::deque<sequence> all{prefilled(1, 3), prefilled(2, 3)};
  for (sequence& s : all) k.wait(s);
  CHECK_FALSE(k.is_unproven(all[0]));  // Prefill said itself that it has ended.
  REQUIRE(k.begin(sink));
  for (std::uint32_t i = 0; i < 2; ++i) k.produce(i, 1);
  k.note_iteration();
  k.evict(all[1], sink);
  CHECK(k.is_unproven(all[1]));
  k.note_iteration();
  CHECK_FALSE(k.is_unproven(all[1]));
}

TEST_CASE("rows and layout are checked") {
  CHECK_THROWS_AS((slot_keeper<fifo>{{.slots = 3}, plenty, 2, fifo{}}), config_error);
  budget_options ring = plenty;
  ring.commit = kv_commit::ring;
  CHECK_THROWS_AS((slot_keeper<fifo>{{.slots = 1, .layout = column_layout::line}, ring, 1, fifo{}}),
                  config_error);
}

}  // namespace
}  // namespace cohort::kv::slot_keeper_test
