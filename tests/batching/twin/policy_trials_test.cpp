// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/twin/policy_trials.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching {
namespace {
using namespace std::chrono_literals;

/// A batch takes 1 ms however large it is.
stage_profile flat() {
  return {std::vector<std::vector<stage_point>>{{{.batch = 16, .time = 1ms}}}, 16};
}

/// Rows of so many requests at most.
struct rows_of : plain_policy {
  explicit rows_of(std::uint32_t n) : plain_policy{n} {}
};

policy_trials<rows_of> make(const stage_profile& p, const std::vector<std::uint32_t>& sizes,
                            std::size_t present) {
  std::vector<rows_of> candidates;
  for (const std::uint32_t n : sizes) candidates.emplace_back(n);
  return {p, {.buffer_sets = 1, .entry = entry_rule::idle}, std::move(candidates), present, {}};
}

/// Poisson, at so many a millisecond.
struct arrivals {
  test::random_source random;
  double ms = 0;
  time_point next(double rate) {
    ms -= std::log((random.below(1U << 20U) + 0.5) / (1U << 20U)) / rate;
    return time_point{} + from_ms(ms);
  }
};

TEST_CASE("the policy that serves what arrives is found, and rounds become rare") {
  const stage_profile p = flat();
  auto trials = make(p, {1, 2, 16}, 0);
  arrivals source{test::random_source{1}};
  int rounds = 0;
  for (int i = 0; i < 60'000; ++i) {
    trials.remember({source.next(1.5)});
    if (!trials.is_due(0)) continue;
    ++rounds;
    trials.choose(0);
  }
  CHECK(trials.present() == 2);
  CHECK(trials.rounds() == static_cast<std::uint64_t>(rounds));
  // After 128, 256, 512, 1024 and 2048, after 4096, 8192 and 16384 more, and so on.
  CHECK(rounds <= 12);
}

TEST_CASE("what is as good as another is not taken") {
  const stage_profile p = flat();
  for (const std::size_t present : {0U, 1U}) {
    auto trials = make(p, {16, 16}, present);
    arrivals source{test::random_source{2}};
    for (int i = 0; i < 20'000; ++i) {
      trials.remember({source.next(5)});
      if (trials.is_due(0)) CHECK_FALSE(trials.choose(0));
    }
    CHECK(trials.present() == present);
  }
}

TEST_CASE("a queue of more than a batch asks for a round before the first is due") {
  const stage_profile p = flat();
  auto trials = make(p, {1, 16}, 0);
  arrivals source{test::random_source{3}};
  for (int i = 0; i < 64; ++i) trials.remember({source.next(3)});
  CHECK_FALSE(trials.is_due(16));
  CHECK(trials.is_due(17));
  CHECK(trials.choose(17));
  CHECK(trials.present() == 1);
}

TEST_CASE("another load is another question") {
  // Two at a time take 3 ms instead of 1, four 3.1: rows of one are best, until they are too slow.
  const stage_profile p{
      std::vector<std::vector<stage_point>>{
          {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 3ms}, {.batch = 8, .time = 3100us}}},
      8};
  auto trials = make(p, {8, 1}, 0);
  arrivals source{test::random_source{4}};
  const auto run = [&](double rate, int n) {
    for (int i = 0; i < n; ++i) {
      trials.remember({source.next(rate)});
      if (trials.is_due(0)) trials.choose(0);
    }
  };
  run(0.4, 40'000);
  CHECK(trials.present() == 1);
  run(1.5, 2000);  // Not after eight full rounds.
  CHECK(trials.present() == 0);
  run(0.4, 2000);
  CHECK(trials.present() == 1);
}

TEST_CASE("who is left because of a queue is not taken again at once") {
  const stage_profile p = flat();
  auto trials = make(p, {8, 16}, 1);
  arrivals source{test::random_source{5}};
  for (int i = 0; i < 10'000; ++i) {
    trials.remember({source.next(4)});
    if (trials.is_due(0)) trials.choose(0);
  }
  CHECK(trials.present() == 1);  // As good as the other.
  CHECK(trials.is_due(200));
  CHECK_FALSE(trials.choose(200));  // With 200 that wait it still is the best.
  CHECK(trials.present() == 1);
}

TEST_CASE("a present that is none of the candidates is refused") {
  const stage_profile p = flat();
  CHECK_THROWS_AS(make(p, {1, 2}, 2), config_error);
}

}  // namespace
}  // namespace cohort::batching
