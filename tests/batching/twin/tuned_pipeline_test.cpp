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

#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>

namespace cohort::batching::tuned_pipeline_test {
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

TEST_CASE("whatever it takes up, each request ends once, and hardly later than with nothing") {
  double worst = 0;
  double sum = 0;
  constexpr std::uint64_t seeds = test::seeds(40);
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
  if (!test::is_sanitized) CHECK(sum / seeds < 0.99);
}

TEST_CASE("it begins with the last, and tries policies on the buckets that came") {
  // Pairs of short requests take 1 ms together, of long ones 3; one takes 1.
  const stage_profile p{
      std::vector<std::vector<stage_point>>{{{.batch = 2, .bucket = 0, .time = 1ms},
                                             {.batch = 1, .bucket = 1, .time = 1ms},
                                             {.batch = 2, .bucket = 1, .time = 3ms}}},
      2, 2};
  for (const std::uint32_t bucket : {0U, 1U}) {
    CAPTURE(bucket);
    tuned_pipeline<plain_policy> tuned{
        p, {.entry = entry_rule::idle}, {plain_policy{1}, plain_policy{2}}, {}};
    CHECK(tuned.policy().batch_max == 2);
    CHECK(tuned.trials().present() == 1);
    account one;
    for (int i = 0; i < 300; ++i) one.arrivals.push_back({time_point{} + i / 2 * 10ms, bucket});
    one.ends.resize(one.arrivals.size());
    replay(tuned, p, one.arrivals, {}, one);
    CHECK(tuned.trials().rounds() >= 1);
    CHECK(tuned.trials().present() == (bucket == 0 ? 1 : 0));
    CHECK(tuned.policy().batch_max == (bucket == 0 ? 2 : 1));
  }
}

TEST_CASE("no candidate is refused") {
  const stage_profile p{std::vector<std::vector<stage_point>>{{{.batch = 4, .time = 8ms}}}, 4};
  CHECK_THROWS_AS((tuned_pipeline<diversity>{p, {}, {}, {}}), config_error);
}

}  // namespace
}  // namespace cohort::batching::tuned_pipeline_test
