// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/prefill_promises.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::prefill_promises_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point at(std::int64_t ms) { return time_point{ms * 1ms}; }

TEST_CASE("a newcomer is taken if it and those due after it stay in time") {
  prefill_promises p;
  p.add({.number = 1, .by = at(100), .work = 40ms});
  p.add({.number = 2, .by = at(200), .work = 50ms});
  CHECK(p.work() == 90ms);
  // Last: 40 + 50 + 30 = 120.
  CHECK(p.can_take(at(250), 160ms, at(0), {}));
  CHECK_FALSE(p.can_take(at(250), 161ms, at(0), {}));
  // In the middle: 40 + w by 150, and 40 + w + 50 by 200.
  CHECK(p.can_take(at(150), 110ms, at(0), {}));
  CHECK_FALSE(p.can_take(at(150), 111ms, at(0), {}));
  // First: w by 90, w + 40 by 100, w + 90 by 200.
  CHECK(p.can_take(at(90), 60ms, at(0), {}));
  CHECK_FALSE(p.can_take(at(90), 61ms, at(0), {}));
  // Of equal deadlines the earlier goes first; both must be in time.
  CHECK(p.can_take(at(100), 60ms, at(0), {}));
  CHECK_FALSE(p.can_take(at(100), 61ms, at(0), {}));
}

TEST_CASE("work that is done, or never will be, makes room") {
  prefill_promises p;
  p.add({.number = 1, .by = at(100), .work = 60ms});
  CHECK_FALSE(p.can_take(at(100), 50ms, at(0), {}));
  p.set_work(1, 50ms);
  CHECK(p.can_take(at(100), 50ms, at(0), {}));
  CHECK_FALSE(p.can_take(at(100), 50ms, at(1), {}));
  CHECK(p.erase(1));
  CHECK_FALSE(p.erase(1));
  p.set_work(1, 1ms);
  CHECK(p.empty());
  CHECK(p.can_take(at(100), 99ms, at(1), {}));
}

TEST_CASE("what runs slower than predicted, or first, counts") {
  prefill_promises p;
  p.add({.number = 1, .by = at(100), .work = 20ms});
  // 10 + 1.5 · (20 + 40) = 100.
  CHECK(p.can_take(at(100), 40ms, at(0), {.busy = 10ms, .stretch = 1.5}));
  CHECK_FALSE(p.can_take(at(100), 40ms, at(0), {.busy = 11ms, .stretch = 1.5}));
  CHECK_FALSE(p.can_take(at(100), 40ms, at(0), {.busy = 10ms, .stretch = 1.6}));
}

TEST_CASE("who is late already is not made later, and does not keep those behind it away") {
  prefill_promises p;
  p.add({.number = 1, .by = at(100), .work = 40ms});
  // At 80 the first cannot be in time; who comes behind is, at 80 + 40 + 30.
  CHECK(p.can_take(at(150), 30ms, at(80), {}));
  CHECK_FALSE(p.can_take(at(99), 1ms, at(80), {}));
}

TEST_CASE("a stream that has promised nothing takes who may be in time at its best") {
  prefill_promises p;
  const prefill_rate slow{.stretch = 4, .best = 2};
  CHECK(p.can_take(at(100), 50ms, at(0), slow));
  CHECK_FALSE(p.can_take(at(100), 51ms, at(0), slow));
  p.add({.number = 1, .by = at(1000), .work = 1ms});
  CHECK(p.can_take(at(100), 25ms, at(0), slow));
  CHECK_FALSE(p.can_take(at(100), 26ms, at(0), slow));
}

TEST_CASE("one like it would be taken when enough has been worked off, or when nothing is left") {
  prefill_promises p;
  CHECK(p.takes_from(50ms, 60ms, at(0), {}) == never);
  CHECK(p.takes_from(50ms, 50ms, at(0), {}) == at(0));
  CHECK(p.takes_from(50ms, 50ms, at(0), {.busy = 7ms}) == at(7));
  p.add({.number = 1, .by = at(100), .work = 80ms});
  // All have 100 ms: 80 are left, 60 may be.
  CHECK(p.takes_from(100ms, 40ms, at(0), {}) == at(20));
  CHECK(p.takes_from(100ms, 40ms, at(5), {.busy = 3ms}) == at(28));
  // One with 50 ms is the later one from 50 on, with 30 left: 20 too many for 40.
  CHECK(p.takes_from(50ms, 40ms, at(0), {}) == at(70));
  CHECK(p.takes_from(50ms, 10ms, at(0), {}) == at(50));
  CHECK(p.takes_from(10ms, 5ms, at(0), {}) == at(80));  // Due before 100 until all is done.
  // Twice as slow: only at its best can it be, with nothing else.
  CHECK(p.takes_from(50ms, 40ms, at(0), {.stretch = 2}) == at(160));
}

/// Whether some order of service has all of them in time, by trying each.
bool any_order(const std::vector<prefill_promise>& all, time_point start) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  do {
    time_point end = start;
    const bool kept = std::ranges::all_of(order, [&](std::size_t i) {
      end += all[i].work;
      return end <= all[i].by;
    });
    if (kept) return true;
  } while (std::ranges::next_permutation(order).found);
  return false;
}

TEST_CASE("a newcomer is taken if and only if some order of service keeps every promise") {
  int taken = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    prefill_promises p;
    std::vector<prefill_promise> all;
    const prefill_rate rate{.busy = 1ms * random.below(5)};
    for (std::uint64_t n = 1; n <= 6; ++n) {
      const prefill_promise one{n, at(5 + random.below(60)), 1ms * random.below(15)};
      all.push_back(one);
      const bool can = p.can_take(one.by, one.work, at(0), rate);
      REQUIRE(can == any_order(all, at(0) + rate.busy));
      if (can) {
        p.add(one);
        ++taken;
      } else {
        all.pop_back();
      }
    }
    REQUIRE(p.size() == all.size());
  }
  CHECK(taken > 4000);
}

/// A stream of prompts by earliest deadline, a millisecond at a time, exactly as fast as predicted.
TEST_CASE(
    "whoever is taken is in time, whoever comes later; and one is taken from when it was said") {
  int taken = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    prefill_promises p;
    std::map<std::pair<time_point, std::uint64_t>, duration> left;
    const double stretch = 1 + random.below(3);
    const prefill_rate rate{.stretch = stretch, .best = stretch};
    const auto step = [&](time_point now) {
      if (left.empty()) return;
      const auto first = left.begin();
      const std::uint64_t number = first->first.second;
      first->second -= 1ms;
      p.set_work(number, first->second / static_cast<std::int64_t>(stretch));
      if (first->second > 0ms) return;
      REQUIRE(now + 1ms <= first->first.first);
      REQUIRE(p.erase(number));
      left.erase(first);
    };
    std::uint64_t number = 0;
    time_point now = at(0);
    for (; now < at(600); now += 1ms) {
      if (random.one_in(8)) {
        const duration work = 1ms * (1 + random.below(30));
        const duration within = 1ms * (1 + random.below(200));
        if (p.can_take(now + within, work, now, rate)) {
          p.add({++number, now + within, work});
          left.emplace(std::pair{now + within, number}, work * static_cast<std::int64_t>(stretch));
          ++taken;
        } else {
          ++refused;
          const time_point from = p.takes_from(within, work, now, rate);
          if (from == never) {
            REQUIRE(work * static_cast<std::int64_t>(stretch) > within);
          } else {
            // Nobody else comes until then.
            const prefill_promises before = p;
            const auto before_left = left;
            REQUIRE(from >= now);
            for (time_point t = now; t < from; t += 1ms) step(t);
            REQUIRE(p.can_take(from + within, work, from, rate));
            p = before;
            left = before_left;
          }
        }
      }
      if (!left.empty() && random.one_in(40)) {  // Cancelled.
        const auto victim =
            std::next(left.begin(), static_cast<std::ptrdiff_t>(random.below(left.size())));
        REQUIRE(p.erase(victim->first.second));
        left.erase(victim);
      }
      step(now);
    }
    while (!left.empty()) step(std::exchange(now, now + 1ms));
    CHECK(p.empty());
  }
  CHECK(taken > 2000);
  CHECK(refused > 1000);
}

}  // namespace
}  // namespace cohort::kv::prefill_promises_test
