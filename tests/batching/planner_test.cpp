// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/planner.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/stage_profile.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching::planner_test {
namespace {
using namespace std::chrono_literals;
using points = std::vector<std::vector<stage_point>>;

TEST_CASE("a profile answers with the next larger batch measured") {
  const stage_profile p{points{{{.batch = 4, .time = 3ms}, {.batch = 1, .time = 1ms}}}, 4};
  CHECK(p.time(0, 1) == 1ms);
  CHECK(p.time(0, 2) == 3ms);
  CHECK(p.time(0, 4) == 3ms);
  CHECK(std::vector<std::uint32_t>(p.sizes().begin(), p.sizes().end()) ==
        std::vector<std::uint32_t>{1, 4});
  CHECK_THROWS_AS(stage_profile({}, 4), config_error);
  CHECK_THROWS_AS(stage_profile(points{{}}, 4), config_error);
  CHECK_THROWS_AS(stage_profile(points{{{.batch = 3, .time = 1ms}}}, 4), config_error);
  CHECK_THROWS_AS(stage_profile(points{{{.batch = 0, .time = 1ms}}}, 1), config_error);
  CHECK_THROWS_AS(stage_profile(points{{{.batch = 4}, {.batch = 4}}}, 4), config_error);
  CHECK_THROWS_AS(stage_profile(points{{{.batch = 4, .share = 0}}}, 4), config_error);
  CHECK_THROWS_AS(stage_profile(points{{{.batch = 4, .bucket = 1}}}, 4), config_error);
}
TEST_CASE("a row that gains nothing from company goes on in parts of one") {
  const stage_profile p{points{{{.batch = 4, .time = 10ms}},
                               {{.batch = 1, .time = 3ms},
                                {.batch = 2, .time = 6ms},
                                {.batch = 3, .time = 9ms},
                                {.batch = 4, .time = 12ms}}},
                        4};
  const planner plan{p};
  std::vector<std::uint32_t> sizes(4);
  REQUIRE(plan.split(0, 4, 0, sizes) == 4);
  CHECK(plan.cost(1, 4, 0) == doctest::Approx(3 + 6 + 9 + 12));
  CHECK(plan.entry(4) == 4);
  const planner whole{p, {.may_split = false}};
  CHECK(whole.split(0, 4, 0, sizes) == 1);
  CHECK(whole.cost(1, 4, 1) == doctest::Approx(5 * 12));
}
TEST_CASE("a larger part is worth it if others wait behind") {
  // Two in 3 ms, one in 2: alone, 2 + 4 and 3 + 3 are equal; with one behind, two at once are
  // better.
  const stage_profile p{
      points{{{.batch = 2, .time = 1ms}}, {{.batch = 1, .time = 2ms}, {.batch = 2, .time = 3ms}}},
      2};
  const planner plan{p};
  std::vector<std::uint32_t> sizes(2);
  CHECK(plan.split(0, 2, 1, sizes) == 1);
  CHECK(plan.split(0, 2, 0, sizes) == 1);  // Of equals the one without a hand-over more.
}

/// The least sum of finish times over every way to run n requests before stage s and m that only
/// wait, depth first, with every division: by recursion over all, without tables.
double brute(const stage_profile& p, std::uint32_t s, std::uint32_t n, std::uint32_t m) {
  if (s == p.stages() || n == 0) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t a = 1; a <= n; ++a) {
    const bool measured = std::ranges::find(p.sizes(), a) != p.sizes().end();
    if (a < n && !measured) continue;
    least = std::min(least, (n + m) * to_ms(p.time(s, a)) + brute(p, s + 1, a, m + n - a) +
                                brute(p, s, n - a, m));
  }
  return least;
}
TEST_CASE("plans agree with trying every division") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    points stages(2 + random.below(2U));
    for (auto& s : stages) {
      duration t{0};
      for (const std::uint32_t b : {1U, 2U, 3U, 5U}) {
        t += 1ms * random.below(5) + 1us;
        s.push_back({.batch = b, .time = t});
      }
    }
    const stage_profile p{stages, 5};
    const planner plan{p};
    for (std::uint32_t n = 1; n <= 5; ++n) {
      for (const std::uint32_t m : {0U, 1U, 7U}) {
        REQUIRE(plan.cost(1, n, m) == doctest::Approx(brute(p, 1, n, m)));
        std::vector<std::uint32_t> sizes(n);
        const std::uint32_t parts = plan.split(0, n, m, sizes);
        REQUIRE(std::accumulate(sizes.begin(), sizes.begin() + parts, 0U) == n);
      }
    }
  }
}
TEST_CASE("who is about to come makes what saves time in all worth more") {
  // Ones: 2 + 4 = 6; both at once: 2 x 3.5 = 7. With three more to come, W(3) = 12 and W(4) = 20:
  // 5 x 3.5 + 12 = 29.5 against 5 x 2 + 20 = 30.
  const stage_profile p{points{{{.batch = 1, .time = 2ms}, {.batch = 2, .time = 3500us}}}, 2};
  const planner plan{p};
  CHECK(plan.entry(2) == 1);
  CHECK(plan.left(3) == doctest::Approx(12));
  CHECK(plan.left(4) == doctest::Approx(20));
  CHECK(plan.entry(2, 1) == 1);
  CHECK(plan.entry(2, 3) == 2);
  CHECK(plan.entry(1, 1000) == 1);
}
TEST_CASE("an item more costs a hand-over") {
  // Ones: 2 + 4 = 6, and 2 for each ms of the hand-over; whole: 2 x 4.2 = 8.4.
  const stage_profile p{points{{{.batch = 2, .time = 1ms}},
                               {{.batch = 1, .time = 2ms}, {.batch = 2, .time = 4200us}}},
                        2};
  std::vector<std::uint32_t> sizes(2);
  CHECK(planner{p, {.hand_over = 1100us}}.split(0, 2, 0, sizes) == 2);
  CHECK(planner{p, {.hand_over = 1300us}}.split(0, 2, 0, sizes) == 1);
  const planner::standing one{.stage = 0, .front = 0, .late = 1, .ahead = 0};
  const stage_profile flat{
      points{{{.batch = 1, .time = 1ms}, {.batch = 2, .time = 2ms}}, {{.batch = 2, .time = 3ms}}},
      2};
  // It joins: 2 x (1 + 3) = 8. It does not: 2 x 3 + 1 + 3 = 10. Two hand-overs of 1 ms make it 12.
  CHECK(planner{flat}.stretch(one, 1, 1) == 1);
  CHECK(planner{flat, {.hand_over = 400us}}.stretch(one, 1, 1) == 1);
  CHECK(planner{flat, {.hand_over = 1ms}}.stretch(one, 1, 1) == 0);
  CHECK_THROWS_AS((planner{p, {.hand_over = -1us}}), config_error);
  std::vector<stage_point> all_sizes;
  for (std::uint32_t b = 1; b <= 1024; ++b) all_sizes.push_back({.batch = b, .time = 1ms});
  CHECK_THROWS_AS(planner{stage_profile(points(20, all_sizes), 1024)}, config_error);
}
TEST_CASE("who joins makes the late ones that it runs with slower") {
  // One in stage 1, one behind it, one that waits; 1 ms, 1 ms each, 3 ms. It joins: three wait 1
  // ms, then 2 ms for two in stage 1, then 3 ms: 18. It does not: 3 x 1 + 3 x 3 + 5 = 17.
  const auto join = [](duration two) {
    const stage_profile p{points{{{.batch = 4, .time = 1ms}},
                                 {{.batch = 1, .time = 1ms}, {.batch = 4, .time = two}},
                                 {{.batch = 4, .time = 3ms}}},
                          4};
    return planner{p}.stretch({.stage = 0, .front = 1, .late = 1, .ahead = 1}, 1, 1);
  };
  CHECK(join(2ms) == 0);
  CHECK(join(1500us) == 1);  // 16.5.
}
TEST_CASE("a row costs a hand-over, so rows are larger than their work would have them") {
  std::vector<stage_point> linear;
  for (std::uint32_t b = 1; b <= 8; ++b) linear.push_back({.batch = b, .time = b * 1ms});
  const stage_profile p{points{linear}, 8};
  // Four alone: 1 + 2 + 3 + 4 = 10 ms in all; together 4 x 4 = 16.
  const planner free{p};
  CHECK(free.entry(4) == 1);
  CHECK(free.left(4) == doctest::Approx(10));
  // With 1 ms each alone take 2 + 4 + 6 + 8 = 20, together 4 x 5 = 20; two pairs 4 x 3 + 2 x 3 = 18
  // and three before one 4 x 4 + 2 = 18: of equals the larger.
  const planner dear{p, {.hand_over = 1ms}};
  CHECK(dear.entry(4) == 3);
  CHECK(dear.left(4) == doctest::Approx(18));
  // With 10 ms: alone 110, pairs 4 x 12 + 2 x 12 = 72, together 56.
  const planner dearest{p, {.hand_over = 10ms}};
  CHECK(dearest.entry(4) == 4);
  CHECK(dearest.left(4) == doctest::Approx(56));
}
TEST_CASE("costs go on beyond the horizon") {
  const stage_profile p{points{{{.batch = 2, .time = 1ms}}, {{.batch = 2, .time = 1ms}}}, 2};
  const planner plan{p};
  CHECK(plan.cost(1, 1, 1000) == doctest::Approx(1001));
  CHECK(plan.left(200) > plan.left(100));
  CHECK(plan.entry(5000) == 2);
  CHECK_THROWS_AS(planner(p, {.bucket = 1}), config_error);
  // One by one 64 take 64 ms, and 64 x 65 / 2 in all; 36 more have 36^2 / 2 among themselves.
  const stage_profile one{points{{{.batch = 1, .time = 1ms}}}, 1};
  const planner single{one};
  CHECK(single.left(64) == doctest::Approx(2080));
  CHECK(single.left(100) == doctest::Approx(2080 + 36 * 64 + 36 * 18));
  // A pair takes 1 ms, and then 1 ms each, although both at once would take 3: pairs end at 2 and
  // 3, 5 and 6, ..., 95 and 96.
  const stage_profile cut{
      points{{{.batch = 2, .time = 1ms}}, {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 3ms}}},
      2};
  const planner pairs{cut};
  CHECK(pairs.left(64) == doctest::Approx(6 * 31 * 16 + 5 * 32));
  CHECK(pairs.left(66) == doctest::Approx(pairs.left(64) + 2 * 96 + 1.5 * 2 * 2 / 2));
}
}  // namespace
}  // namespace cohort::batching::planner_test
