// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/slicer.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching::slicer_test {
namespace {
using namespace std::chrono_literals;

/// Flat up to p, then in proportion.
std::vector<batch_time> shape(duration t, std::uint32_t p) {
  std::vector<batch_time> m;
  for (const std::uint32_t b : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
    m.push_back({b, t * std::max(1U, b / p)});
  }
  return m;
}

TEST_CASE("the preferred batch is the smallest from which on time grows in proportion") {
  CHECK(preferred_batch(shape(1ms, 1)) == 1);
  CHECK(preferred_batch(shape(1ms, 8)) == 8);
  CHECK(preferred_batch(shape(1ms, 64)) == 64);  // None within: the largest.
  // 1.85 of 2 is within 10 %, 1.7 is not.
  CHECK(preferred_batch(std::vector<batch_time>{{1, 100ms}, {2, 185ms}, {4, 370ms}}) == 1);
  CHECK(preferred_batch(std::vector<batch_time>{{1, 100ms}, {2, 170ms}, {4, 340ms}}) == 2);
  // Twice as long for two as for one, whatever four take.
  CHECK(preferred_batch(std::vector<batch_time>{{1, 100ms}, {2, 200ms}, {4, 210ms}}) == 1);
  // 6 is not twice 4: 4 to 6 must grow by half.
  CHECK(preferred_batch(std::vector<batch_time>{{4, 10ms}, {6, 15ms}}) == 4);
  CHECK_THROWS_AS((void)preferred_batch({}), config_error);
}
TEST_CASE("measurements that fall are noise") {
  const auto m = monotone({{4, 9ms}, {1, 5ms}, {2, 4ms}});
  CHECK(m[0].batch == 1);
  CHECK(m[1].time == 5ms);
  CHECK(m[2].time == 9ms);
  CHECK_THROWS_AS((void)monotone({{1, 1ms}, {1, 2ms}}), config_error);
  CHECK_THROWS_AS((void)monotone({{0, 1ms}}), config_error);
}
TEST_CASE("even slices have the least largest sum, and earlier cuts among equals") {
  CHECK(slice_evenly(std::array{duration{1}, duration{1}, duration{1}, duration{3}}, 2) ==
        slicing{3, 4});
  CHECK(slice_evenly(std::array{duration{5}, duration{1}, duration{1}}, 2) == slicing{1, 3});
  CHECK(slice_evenly(std::array{duration{2}, duration{2}, duration{2}}, 2) == slicing{1, 3});
  CHECK(slice_evenly(std::array{duration{2}, duration{2}}, 2) == slicing{1, 2});
  CHECK_THROWS_AS((void)slice_evenly(std::array{duration{2}}, 2), config_error);
  CHECK_THROWS_AS((void)slice_evenly(std::array{duration{2}}, 0), config_error);
}
TEST_CASE("even slices agree with trying all cuts") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<duration> t(1 + random.below(8U));
    for (duration& d : t) d = duration{1 + random.below(9)};
    const std::size_t stages = 1 + random.below(t.size());
    duration least = duration::max();
    for (unsigned cuts = 0; cuts < 1U << (t.size() - 1); ++cuts) {
      if (static_cast<std::size_t>(__builtin_popcount(cuts)) + 1 != stages) continue;
      duration sum{0};
      duration most{0};
      for (std::size_t i = 0; i < t.size(); ++i) {
        sum += t[i];
        most = std::max(most, sum);
        if ((cuts >> i & 1U) != 0) sum = duration{0};
      }
      least = std::min(least, most);
    }
    const slicing s = slice_evenly(t, stages);
    REQUIRE(s.size() == stages);
    REQUIRE(s.back() == t.size());
    duration most{0};
    std::size_t from = 0;
    for (const std::size_t end : s) {
      REQUIRE(end > from);
      duration sum{0};
      for (; from < end; ++from) sum += t[from];
      most = std::max(most, sum);
    }
    REQUIRE(most == least);
  }
}
TEST_CASE("operators are cut where the preferred batch changes, then evenly") {
  const std::vector<std::vector<batch_time>> ops{shape(1ms, 32), shape(1ms, 32), shape(1ms, 4),
                                                 shape(1ms, 4),  shape(1ms, 4),  shape(1ms, 4)};
  CHECK(slice(ops, 1, 1) == slicing{2, 6});  // The change decides.
  CHECK(slice(ops, 2, 1) == slicing{2, 6});
  CHECK(slice(ops, 3, 1) == slicing{2, 4, 6});
  CHECK(slice(ops, 6, 1) == slicing{1, 2, 3, 4, 5, 6});
  CHECK_THROWS_AS((void)slice(ops, 7, 1), config_error);
  CHECK_THROWS_AS((void)slice(ops, 0, 1), config_error);
  const auto stages = sum_stages(ops, {2, 6});
  CHECK(stages[0].back().time == 4ms);
  CHECK(stages[1].back().time == 64ms);
  CHECK(preferred_batch(stages[1]) == 4);
}
TEST_CASE("an operator alone is not cut, however long it takes") {
  const std::vector<std::vector<batch_time>> ops{shape(10ms, 32), shape(1ms, 4), shape(1ms, 4),
                                                 shape(1ms, 4)};
  CHECK(slice(ops, 3, 1) == slicing{1, 2, 4});
  CHECK(slice(ops, 4, 1) == slicing{1, 2, 3, 4});
}
TEST_CASE("more changes of the preferred batch than stages make even slices") {
  const std::vector<std::vector<batch_time>> ops{shape(1ms, 32), shape(1ms, 4), shape(2ms, 32)};
  CHECK(slice(ops, 2, 1) == slicing{1, 2, 3});
  CHECK(slice_to(ops, 1, 1) == slicing{3});
  CHECK(slice_to(ops, 2, 1) == slicing{2, 3});
  CHECK(slice_to(ops, 3, 1) == slicing{1, 2, 3});
  CHECK_THROWS_AS((void)slice_to(ops, 4, 1), config_error);
}
TEST_CASE("points of buckets are added to the stages") {
  const std::vector<std::vector<batch_time>> small{{{1, 1ms}, {2, 2ms}}, {{1, 3ms}}, {{1, 5ms}}};
  const std::vector<std::vector<batch_time>> large{{{1, 4ms}}, {{1, 6ms}}, {{1, 7ms}, {4, 9ms}}};
  std::vector<std::vector<stage_point>> stages;
  add_stage_points(stages, small, {2, 3});
  add_stage_points(stages, large, {2, 3}, 1);
  const auto is = [](const stage_point& p, std::uint32_t batch, std::uint32_t bucket, duration t) {
    return p.batch == batch && p.bucket == bucket && p.time == t;
  };
  REQUIRE(stages.size() == 2);
  REQUIRE(stages[0].size() == 2);  // Not every operator of the first stage was measured at 2.
  CHECK(is(stages[0][0], 1, 0, 4ms));
  CHECK(is(stages[0][1], 1, 1, 10ms));
  REQUIRE(stages[1].size() == 3);
  CHECK(is(stages[1][0], 1, 0, 5ms));
  CHECK(is(stages[1][1], 1, 1, 7ms));
  CHECK(is(stages[1][2], 4, 1, 9ms));
}
TEST_CASE("the number of stages is the cheapest tried") {
  const std::array<std::size_t, 3> tries{4, 2, 8};
  CHECK(best_stage_count(tries, [](std::size_t) { return 1.0; }) == 2);
  CHECK(best_stage_count(tries, [](std::size_t n) { return 1.0 / static_cast<double>(n); }) == 8);
  // A gain of half a per cent is none, of two it is one.
  CHECK(best_stage_count(tries, [](std::size_t n) { return n == 2 ? 1.0 : 0.995; }) == 2);
  CHECK(best_stage_count(tries, [](std::size_t n) { return n == 2 ? 1.0 : 0.98; }) > 2);
}
}  // namespace
}  // namespace cohort::batching::slicer_test
