// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/sized_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching::sized_rows_test {
namespace {
using namespace std::chrono_literals;
using list = std::vector<std::uint32_t>;
using stages = std::vector<std::vector<stage_point>>;

/// A row of n takes 4 ms and 1 ms for each, twice that in the longer bucket.
stage_profile affine() {
  std::vector<stage_point> points;
  for (std::uint32_t n = 1; n <= 8; ++n) {
    points.push_back({.batch = n, .bucket = 0, .time = 4ms + n * 1ms, .share = n / 8.0});
    points.push_back({.batch = n, .bucket = 1, .time = 8ms + n * 2ms, .share = n / 8.0});
  }
  return {stages{std::move(points)}, 8, 2};
}

/// @param mix Of earlier arrivals.
entry_decision choose(const stage_profile& p, const list& buckets, double rate, std::uint32_t lanes,
                      double running = 0, std::uint32_t room = 8, list mix = {}) {
  waiting_list w;
  mix.resize(p.buckets());
  for (std::uint32_t i = 0; i < buckets.size(); ++i) {
    w.push({.tag = i, .bucket = buckets[i]});
    ++mix[buckets[i]];
  }
  return sized_rows{p}.choose({.now = {},
                               .waiting = w,
                               .eligible = w.size(),
                               .rows = 0,
                               .requests_in_flight = 0,
                               .running_share = running,
                               .window = false,
                               .rate = rate,
                               .lanes = lanes,
                               .mix = mix},
                              room);
}

TEST_CASE("what costs much for a row is shared by all that wait") {
  const stage_profile p = affine();
  CHECK(choose(p, {0, 0, 0, 0}, 0, 1).count == 4);
  CHECK(choose(p, {0, 0, 0, 0}, 0, 1, 0, 3).count == 3);  // As many as there is room for.
  // A short one and four long ones: together 5 x 18, apart 5 + 4 x 5 + 4 x 16.
  const entry_decision d = choose(p, {0, 1, 1, 1, 1}, 0, 1);
  CHECK(d.count == 1);
  CHECK(d.bucket == 0);
  // The other way round the short one waits for the long ones, and is then of any length, 9 in the
  // mean: 4 x 16 + 16 + 9.
  CHECK(choose(p, {1, 1, 1, 1, 0}, 0, 1).count == 4);
}

TEST_CASE("rows that run beside others cost only their share of the device") {
  // Alone on a device of two lanes a row of one costs half of its time: two rows of one, of 5 ms
  // each, are better than one of two, of 6.
  CHECK(choose(affine(), {0, 0}, 0, 1).count == 2);
  CHECK(choose(affine(), {0, 0}, 0, 2).count == 1);
}

TEST_CASE("rows that fill the device gain nothing from lanes, and are slowed down by what runs") {
  const auto pair = [](duration two, double share_of_one) {
    return stage_profile{
        stages{{{.batch = 1, .time = 5ms, .share = share_of_one}, {.batch = 2, .time = two}}}, 2};
  };
  // One by one: 5 + 5 while the other waits, + 5 = 15; both at once 2 x 7. A row of half the device
  // keeps the other waiting for 2.5 ms only, and so does the next: 10.
  CHECK(choose(pair(7ms, 1), {0, 0}, 0, 2).count == 2);
  CHECK(choose(pair(7ms, 0.5), {0, 0}, 0, 2).count == 1);
  // Both at once take 5 ms, alone. Beside what uses 0.9 they take 1.9 times as long, 2 x 9.5, but
  // one of a tenth of the device 5: 15 in all.
  CHECK(choose(pair(5ms, 0.1), {0, 0}, 0, 1).count == 2);
  CHECK(choose(pair(5ms, 0.1), {0, 0}, 0, 1, 0.9).count == 1);
}
TEST_CASE("a shorter one fills a row of a long one") {
  // Together 2 x 12. Alone 10, for which the short one waits, which is then of any length: 10 + 10
  // + 7.5.
  const entry_decision d = choose(affine(), {1, 0}, 0, 1);
  CHECK(d.count == 2);
  CHECK(d.bucket == 1);
}
TEST_CASE("two of three are long: the longest of two is short once in nine times") {
  // Of short ones three take 4 ms, of long ones 10. All at once: 3 x 10. The short one first: 4 + 2
  // x 4, and then two in 4 / 9 + 10 x 8 / 9 = 28 / 3: 12 + 2 x 28 / 3 = 30.7.
  const stage_profile p{
      stages{{{.batch = 3, .bucket = 0, .time = 4ms}, {.batch = 3, .bucket = 1, .time = 10ms}}}, 3,
      2};
  CHECK(choose(p, {0, 1, 1}, 0, 1).count == 3);
}
TEST_CASE("rows by age are tried in the measured sizes, not only in the largest") {
  // The oldest two, padded: 2 x 6, while one waits, + 6 + (4 + 2 x 5) / 3 = 22.7. The oldest: 4 + 2
  // x 4 + 2 (8 + 8 x 6) / 9 = 24.4. All: 3 x 30.
  const stage_profile p{stages{{{.batch = 1, .bucket = 0, .time = 4ms},
                                {.batch = 2, .bucket = 0, .time = 8ms},
                                {.batch = 3, .bucket = 0, .time = 12ms},
                                {.batch = 1, .bucket = 1, .time = 5ms},
                                {.batch = 2, .bucket = 1, .time = 6ms},
                                {.batch = 3, .bucket = 1, .time = 30ms}}},
                        3, 2};
  const entry_decision d = choose(p, {0, 1, 1}, 0, 1);
  CHECK(d.count == 2);
  CHECK(d.bucket == 1);
  CHECK(d.fill == fill_order::oldest);
}
TEST_CASE("a load beyond the peak of padded rows is weighed by rows of one bucket") {
  // Three, padded to the longest, take 9.25 ms in the mean, in which 3.7 come: more than a row
  // holds. Rows of one bucket take 7, in which 2.8 come. So g = 2.8 + 1.4. The short one first: 4 +
  // (1 + 0.8
  // - g) 4 + (2.6 + 1.4 - g) 7 = -7. Both: 20 + (2 - g) 10 and what it takes to serve four, as many
  // as wait then: more than 0.
  const stage_profile p{
      stages{{{.batch = 3, .bucket = 0, .time = 4ms}, {.batch = 3, .bucket = 1, .time = 10ms}}}, 3,
      2};
  CHECK(choose(p, {0, 1}, 0.4, 1).count == 1);
  CHECK(choose(p, {0, 1}, 0, 1).count == 1);  // 4 + 4 + 7 against 2 x 10.
  // With a load that not even these carry, the short one of four goes first: the three that are
  // left take D(3) = (7 + 3 x 14) / 4, not the 13.9 of padded rows, for which all go at once.
  CHECK(choose(affine(), {0, 1, 1, 1}, 0.4, 1).count == 1);
}

/// Rows of eight take 12 and 48 ms.
stage_profile unlike() {
  std::vector<stage_point> points;
  for (std::uint32_t n = 1; n <= 8; ++n) {
    points.push_back({.batch = n, .bucket = 0, .time = 4ms + n * 1ms});
    points.push_back({.batch = n, .bucket = 1, .time = 16ms + n * 4ms});
  }
  return {stages{std::move(points)}, 8, 2};
}

TEST_CASE("however many wait, and whatever the load, a long one does not keep a row to itself") {
  // 30 ms in the mean, 3.75 a request. If a long one relieved the queue by that alone, a row of
  // one, 20 ms, would lose less than one of eight: 20 - 3.75 against 48 - 8 x 3.75.
  const stage_profile p = unlike();
  for (const double rate : {0.18, 0.2, 0.26, 0.3, 2.0}) {
    for (const std::uint32_t waiting : {40U, 400U, 4000U}) {
      CAPTURE(rate);
      CAPTURE(waiting);
      list buckets(waiting);
      for (std::uint32_t i = 0; i < waiting; i += 2) buckets[i] = 1;
      const entry_decision d = choose(p, buckets, rate, 1);
      CHECK(d.count == 8);
      CHECK(d.bucket == 1);
      CHECK(d.fill == fill_order::longest_first);
    }
  }
}

TEST_CASE("long ones that are rare count in the queue for what they take from it") {
  // Of 100 lately 8 were long: rows of one bucket take 14.9 ms in the mean, so that a long one
  // counts as 3.2 requests, and eight of them as 26.
  CHECK(choose(unlike(), {1, 1, 1, 1, 1, 1, 1, 1}, 0.3, 1, 0, 8, {92, 0}).count == 8);
}

TEST_CASE("a load near the peak makes rows larger") {
  const stage_profile p = affine();
  std::uint32_t before = 0;
  for (const double rate : {0.0, 0.3, 0.6, 0.9}) {
    CAPTURE(rate);
    const std::uint32_t n = choose(p, {0, 0, 0, 0, 0, 0, 0, 0}, rate, 2).count;
    CHECK(n >= before);
    before = n;
  }
  CHECK(before == 4);  // Two such rows side by side take 8 ms for 8 requests, one of 8 takes 12.
}

TEST_CASE("a row is possible, and holds the oldest, whatever the profile") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t buckets = 1 + random.below(100U);
    const std::uint32_t batch_max = 1 + random.below(40U);
    std::vector<stage_point> points;
    for (std::uint32_t k = 0; k < buckets; ++k) {
      for (std::uint32_t n = 1; n < batch_max; n += 1 + random.below(5U)) {
        points.push_back({.batch = n, .bucket = k, .time = duration{random.below(1'000'000U)}});
      }
      points.push_back({.batch = batch_max, .bucket = k, .time = duration{random.below(1000U)}});
    }
    const stage_profile p{stages{points}, batch_max, buckets};
    list waiting(1 + random.below(60U));
    for (std::uint32_t& k : waiting) k = random.below(buckets);
    const std::uint32_t room = 1 + random.below(batch_max);
    const double rate = random.below(4U) == 0 ? 0 : 0.01 * random.below(10'000U);
    const entry_decision d = choose(p, waiting, rate, 1 + random.below(3U), 0, room);
    CHECK(d.count >= 1);
    CHECK(d.count <= std::min<std::size_t>(room, waiting.size()));
    CHECK(d.bucket >= waiting[0]);
    if (d.fill == fill_order::longest_first) {
      CHECK(d.bucket == waiting[0]);
    } else {
      CHECK(d.fill == fill_order::oldest);
      CHECK(d.bucket == *std::max_element(waiting.begin(), waiting.begin() + d.count));
    }
  }
}

}  // namespace
}  // namespace cohort::batching::sized_rows_test
