// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/sized_rows.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching {
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

entry_decision choose(const stage_profile& p, const list& buckets, double rate, std::uint32_t lanes,
                      double running = 0, std::uint32_t room = 8) {
  waiting_list w;
  list mix(p.buckets());
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
}  // namespace cohort::batching
