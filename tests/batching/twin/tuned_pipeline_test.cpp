// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/twin/tuned_pipeline.hpp>

#include <doctest/doctest.h>

#include <cohort/batching/alternatives.hpp>
#include <cohort/batching/diversity.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching {
namespace {
using namespace std::chrono_literals;

double uniform(test::random_source& random) {
  return (random.below(1U << 20U) + 0.5) / (1U << 20U);
}

/// Sums latencies, and sees that each request ends once.
struct account : null_replay_watch {
  std::vector<staged_arrival> arrivals{};
  std::vector<int> ends{};
  double sum_ms = 0;

  void ended(const staged_request& r, outcome how, time_point at) noexcept {
    if (how == outcome::completed) ++ends[r.tag];
    sum_ms += to_ms(at - arrivals[r.tag].at);
  }
};

/// Stages whose time is anything for any size, by bucket, with shares of the device.
stage_profile random_profile(test::random_source& random, std::uint32_t buckets) {
  const std::uint32_t batch_max = 1 + random.below(16U);
  std::vector<std::vector<stage_point>> stages(1 + random.below(3U));
  for (auto& points : stages) {
    const double fixed = 0.1 + 3 * uniform(random);
    const double each = 2 * uniform(random);
    for (std::uint32_t k = 0; k < buckets; ++k) {
      for (std::uint32_t n = 1; n <= batch_max; ++n) {
        const double noise = 0.97 + 0.06 * uniform(random);
        points.push_back({.batch = n,
                          .bucket = k,
                          .time = from_ms((fixed + each * n) * (k + 1) * noise),
                          .share = 0.1 + 0.9 * uniform(random)});
      }
    }
  }
  return {stages, batch_max, buckets};
}

TEST_CASE("alternatives begin with nothing and end with all, and are no two the same") {
  const stage_profile p{std::vector<std::vector<stage_point>>{{{.batch = 4, .time = 8ms}}}, 4};
  const diversity none{p, {.split = split_rule::none, .stretch = stretch_rule::none}};
  CHECK(alternatives(none, p, 1).size() == 4);  // Two delays.
  const diversity all{p, {.input = input_rule::filled}};
  for (const std::uint32_t lanes : {1U, 3U}) {
    const std::vector<diversity> a = alternatives(all, p, lanes);
    CHECK(a.size() == (lanes == 1 ? 7 : 9));
    CHECK(a.front().options().most_rows == 1);
    CHECK(a.front().options().split == split_rule::none);
    CHECK(a[1].options().delay == 1ms);
    CHECK(a.back().options().input == input_rule::filled);
    CHECK(a.back().options().split == split_rule::planned);
  }
}

TEST_CASE("whatever it takes up, each request ends once, and hardly later than with nothing") {
  double worst = 0;
  double sum = 0;
  constexpr std::uint64_t seeds = 40;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::uint32_t buckets = 1 + random.below(3U);
    const bool parallel = random.one_in(2);
    const stage_profile p = random_profile(random, buckets);
    const pipeline_options o{.buffer_sets = 2,
                             .executors_per_set = parallel,
                             .entry = parallel ? entry_rule::stage_free : entry_rule::idle,
                             .max_waiting = 10'000};
    const diversity policy{p, {.input = buckets > 1 ? input_rule::filled : input_rule::none}};
    account one;
    const double peak = p.batch_max() / to_ms(p.total(p.batch_max(), buckets - 1));
    double at = 0;
    for (int i = 0; i < 6000; ++i) {
      // A load that doubles half-way.
      at -= std::log(uniform(random)) / (peak * (i < 3000 ? 0.4 : 0.8));
      one.arrivals.push_back({time_point{} + from_ms(at), random.below(buckets)});
    }
    one.ends.resize(one.arrivals.size());
    account other = one;
    const replay_options on{.parallel = parallel};
    const std::vector<diversity> all = alternatives(policy, p, parallel ? 2 : 1);
    tuned_pipeline tuned{p, o, all, on};
    replay(tuned, p, one.arrivals, on, one);
    pipeline zero{p, o, all.front()};
    replay(zero, p, other.arrivals, on, other);
    CHECK(std::ranges::count(one.ends, 1) == 6000);
    CHECK(std::ranges::count(other.ends, 1) == 6000);
    CHECK(tuned.is_idle());
    CHECK(tuned.trials().rounds() >= 2);
    worst = std::max(worst, one.sum_ms / other.sum_ms);
    sum += one.sum_ms / other.sum_ms;
  }
  MESSAGE("mean " << sum / seeds << ", worst " << worst);
  CHECK(worst < 1.1);
  CHECK(sum / seeds < 0.99);
}

TEST_CASE("no candidate is refused") {
  const stage_profile p{std::vector<std::vector<stage_point>>{{{.batch = 4, .time = 8ms}}}, 4};
  CHECK_THROWS_AS((tuned_pipeline<diversity>{p, {}, {}, {}}), config_error);
}

}  // namespace
}  // namespace cohort::batching
