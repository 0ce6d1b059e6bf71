// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/pick_policy.hpp>

#include <doctest/doctest.h>

#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::pick_policy_test {
namespace {

using list = std::vector<waiting_view>;

list of_lengths(std::initializer_list<std::uint32_t> lengths) {
  list out;
  for (const std::uint32_t m : lengths) {
    out.push_back({.sequence = out.size(), .length = m});
  }
  return out;
}

TEST_CASE("fifo takes the first that the budget admits") {
  const list w = of_lengths({9, 4, 2});
  CHECK(fifo{}.pick(w, {.length = 5}) == 0);
  CHECK(fifo{}.pick(w, {.length = 5, .max_length = 4}) == 1);
  CHECK(fifo{}.pick(w, {.length = 5, .max_length = 1}) == no_pick);
  CHECK(fifo{}.pick(list{}, {}) == no_pick);
}

TEST_CASE("by_priority takes the most important, and of equals the one that ran before") {
  list w = of_lengths({3, 3, 3, 3});
  w[0].priority = 2;
  w[1].priority = 1;
  w[2].priority = 1;
  w[3].priority = 1;
  CHECK(by_priority{}.pick(w, {}) == 1);
  w[3].was_running = true;
  CHECK(by_priority{}.pick(w, {}) == 3);
  w[3].length = 9;
  CHECK(by_priority{}.pick(w, {.max_length = 8}) == 1);
}

TEST_CASE("best_fit takes the longest that fits the window, else the shortest") {
  const list w = of_lengths({9, 4, 5, 5, 7});
  CHECK(best_fit{}.pick(w, {.length = 6}) == 2);  // 5 fits best; the first of the two.
  CHECK(best_fit{}.pick(w, {.length = 3}) == 1);  // None fits: 4 lengthens the batch least.
  CHECK(best_fit{}.pick(w, {.length = 0}) == 1);
  CHECK(best_fit{}.pick(w, {.length = 100}) == 0);
  CHECK(best_fit{}.pick(w, {.length = 100, .max_length = 6}) == 2);
}

TEST_CASE("best_fit counts priority first and lets nobody wait for ever") {
  list w = of_lengths({9, 4, 5});
  w[0].priority = 0;
  w[1].priority = 1;
  w[2].priority = 1;
  CHECK(best_fit{}.pick(w, {.length = 6}) == 0);
  w[0].priority = 1;
  CHECK(best_fit{}.pick(w, {.length = 6}) == 2);
  w[0].skipped = 64;
  CHECK(best_fit{}.pick(w, {.length = 6}) == 0);
  w[0].skipped = 1000;
  CHECK(best_fit{.max_skips = 0}.pick(w, {.length = 6}) == 2);
}

TEST_CASE("no policy leaves a slot empty while somebody admissible waits") {
  test::random_source random{5};
  for (int n = 0; n < 20000; ++n) {
    list w(random.below(6U));
    bool any = false;
    const pick_view view{.length = random.below(20U), .max_length = random.below(20U)};
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = {.sequence = i,
              .length = 1 + random.below(25U),
              .skipped = random.below(100U),
              .priority = static_cast<std::uint8_t>(random.below(3U)),
              .was_running = random.one_in(2)};
      any = any || w[i].length <= view.max_length;
    }
    for (const std::size_t i : {fifo{}.pick(w, view), by_priority{}.pick(w, view),
                                best_fit{}.pick(w, view), best_fit{.max_skips = 0}.pick(w, view)}) {
      REQUIRE((i != no_pick) == any);
      if (any) REQUIRE(w[i].length <= view.max_length);
    }
  }
}

}  // namespace
}  // namespace cohort::kv::pick_policy_test
