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

namespace cohort::batching::policy_trials_test {
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
  CHECK(rounds <= 15);  // At 8, 16, 32, ..., 32768, and 49152.
}

TEST_CASE("rounds come whenever arrivals have doubled, then ever less often") {
  const stage_profile p = flat();
  auto trials = make(p, {1, 1}, 0);
  std::vector<int> rounds;
  for (int i = 1; i <= 60'000; ++i) {
    trials.remember({time_point{} + i * 10ms});
    if (!trials.is_due(0)) continue;
    rounds.push_back(i);
    CHECK_FALSE(trials.choose(0));
  }
  CHECK(rounds ==
        std::vector{8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16'384, 32'768, 49'152});
}

TEST_CASE("what is as good as another is not taken") {
  const stage_profile p = flat();
  for (const std::size_t present : {0U, 1U}) {
    auto trials = make(p, {16, 16}, present);
    arrivals source{test::random_source{2}};
    for (int i = 0; i < 20'000; ++i) {
      trials.remember({source.next(5)});
      if (!trials.is_due(0)) continue;
      // Who decides at first must prove to be better than the first, if it is not that.
      CHECK(trials.choose(0) == (present == 1 && i == 7));
    }
    CHECK(trials.present() == 0);
  }
}

TEST_CASE("the first round comes after 8 arrivals, however many wait") {
  const stage_profile p = flat();
  auto trials = make(p, {1, 16}, 0);
  CHECK_FALSE(trials.choose(0));  // Nothing to try them on.
  arrivals source{test::random_source{3}};
  for (int i = 0; i < 7; ++i) trials.remember({source.next(3)});
  CHECK_FALSE(trials.is_due(1000));
  trials.remember({source.next(3)});
  CHECK(trials.is_due(0));
  CHECK(trials.choose(17));
  CHECK(trials.present() == 1);
}

TEST_CASE("who decides at first stays after a round that shows a gain, though it may be chance") {
  // Two of 16 come together: 1 of 17 ms is gained, in six of the 16 parts, whose three standard
  // errors are as much.
  const stage_profile p = flat();
  const auto stays = [&](std::size_t present, bool gains) {
    auto trials = make(p, {1, 2}, present);
    for (int i = 0; i < 16; ++i) {
      trials.remember({time_point{} + (gains && i == 15 ? 14 : i) * 10ms});
    }
    return trials.choose(0) ? 1 - present : present;
  };
  CHECK(stays(0, true) == 0);
  CHECK(stays(1, true) == 1);
  CHECK(stays(1, false) == 0);
}

TEST_CASE("what is a little too slow shows, however few the arrivals are") {
  // Rows of one take 1 ms, of which 0.95 pass between arrivals. The last 48 of 64 take 3 ms in the
  // mean, less than rows of eight do, which take 3.1 ms; but the last 384 of 512 take 17 ms.
  const stage_profile p{
      std::vector<std::vector<stage_point>>{
          {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 3ms}, {.batch = 8, .time = 3100us}}},
      8};
  auto trials = make(p, {1, 8}, 0);
  for (int i = 0; i < 64; ++i) trials.remember({time_point{} + i * 950us});
  CHECK(trials.choose(0));
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

TEST_CASE("a queue is no reason to leave the policy that serves it best") {
  const stage_profile p = flat();
  auto trials = make(p, {8, 16}, 0);
  arrivals source{test::random_source{5}};
  for (int i = 0; i < 10'000; ++i) {
    trials.remember({source.next(4)});
    if (trials.is_due(0)) trials.choose(0);
  }
  CHECK(trials.present() == 0);  // As good as the other.
  CHECK(trials.is_due(200));
  CHECK_FALSE(trials.choose(200));  // With 200 that wait it still is the best.
  CHECK(trials.present() == 0);
}

/// One takes 1 ms, two together 1.2, four as given. One by one they take 1, 2, 3 and 4.
stage_profile groups(duration four) {
  return {
      std::vector<std::vector<stage_point>>{
          {{.batch = 1, .time = 1ms}, {.batch = 2, .time = 1200us}, {.batch = 4, .time = four}}},
      4};
}
/// Groups of so many, 5 ms apart for each, until so many requests have come.
void remember_groups(policy_trials<rows_of>& trials, int of, int n, duration from = {}) {
  for (int i = 0; i < n; ++i) {
    trials.remember({time_point{} + from + i / of * of * 5ms});
    if (trials.is_due(0)) trials.choose(0);
  }
}
TEST_CASE("what is better by less than half a per cent is not taken, but for the simplest") {
  const auto ends_with = [](duration four, const std::vector<std::uint32_t>& sizes,
                            std::size_t present) {
    const stage_profile p = groups(four);
    auto trials = make(p, sizes, present);
    // Pairs show that rows of two or more are better.
    if (present == 1) remember_groups(trials, 2, 16);
    remember_groups(trials, 4, 10'000, present == 1 ? 16 * 5ms : 0ms);
    return trials.present();
  };
  // In rows of four they wait 0.3 per cent longer than the 2.5 ms in rows of one; then 1 per cent.
  CHECK(ends_with(2507500ns, {4, 1}, 0) == 0);
  CHECK(ends_with(2525us, {4, 1}, 0) == 1);
  CHECK(ends_with(2507500ns, {1, 4}, 1) == 0);
  // The same to the other side: it is better than the simplest, if by little.
  CHECK(ends_with(2492500ns, {1, 4}, 1) == 1);
}
TEST_CASE("what is better in some parts of a round alone is chance") {
  // The 64 arrivals of the first round come eight times, of which the last six are judged: 384, in
  // parts of 24. Three that come together gain 3 ms in one row: 3 of 67 ms, 4.6 per cent in
  // logarithms. Six of the 16 parts have them, which makes a standard error of 1.5 per cent. Better
  // by half a per cent and three of these it is not.
  const stage_profile p = flat();
  const auto takes = [&](int every) {
    auto trials = make(p, {1, 3}, 0);
    for (int i = 0; i < 64; ++i) {
      const int after = i >= 40 ? (i - 40) % every : 0;
      trials.remember({time_point{} + (after < 3 ? i - after : i) * 10ms});
    }
    REQUIRE(trials.is_due(0));
    return trials.choose(0);
  };
  CHECK_FALSE(takes(24));  // Those of index 40 to 42.
  CHECK(takes(8));         // And 48 to 50, 56 to 58.
}
TEST_CASE("a queue is a surprise if it is more than 8 and twice what waited in the trial") {
  const stage_profile p = flat();
  auto trials = make(p, {1, 1}, 0);
  remember_groups(trials, 2, 128);  // Rounds in which at most one waits.
  REQUIRE(trials.rounds() == 5);
  for (int i = 0; i < 63; ++i) trials.remember({time_point{} + 1s + i * 10ms});
  CHECK_FALSE(trials.is_due(1000));  // Fewer than 64 arrivals say nothing.
  trials.remember({time_point{} + 2s});
  CHECK_FALSE(trials.is_due(10));
  CHECK(trials.is_due(11));
}
TEST_CASE("trials refuse nobody, however few the pipeline lets wait") {
  const stage_profile p = flat();
  std::vector<rows_of> candidates{rows_of{1}, rows_of{16}};
  // Eight in one row take 1 ms each, one by one 4.5 in the mean.
  policy_trials<rows_of> trials{
      p, {.buffer_sets = 1, .entry = entry_rule::idle, .max_waiting = 1}, candidates, 0, {}};
  remember_groups(trials, 8, 128);
  CHECK(trials.present() == 1);
}

/// Rows of eight in 2 ms, for which the oldest waits 12 ms; or rows of one at once, in 1 ms.
struct patient : plain_policy {
  duration delay;
  patient(std::uint32_t n, duration d) : plain_policy{n}, delay{d} {}
  [[nodiscard]] entry_decision entry(const entry_view& v) const noexcept {
    const time_point due = v.waiting[0].arrival + delay;
    if (v.eligible < batch_max && v.now < due) return {.again = due};
    return plain_policy::entry(v);
  }
};
TEST_CASE("who is left because of a queue is not taken again for a while, which doubles") {
  const stage_profile p{
      std::vector<std::vector<stage_point>>{{{.batch = 1, .time = 1ms}, {.batch = 8, .time = 2ms}}},
      8};
  policy_trials<patient> trials{
      p, {.buffer_sets = 1, .entry = entry_rule::idle}, {patient{8, 12ms}, patient{1, 0ms}}, 0, {}};
  arrivals source{test::random_source{6}};
  const auto run = [&](int n) {
    for (int i = 0; i < n; ++i) {
      trials.remember({source.next(0.4)});
      if (trials.is_due(0)) trials.choose(0);
    }
  };
  run(20'000);
  REQUIRE(trials.present() == 1);
  for (const int barred : {4096, 8192}) {
    CAPTURE(barred);
    for (int i = 0; i < 64; ++i) trials.remember({source.next(0.4)});
    REQUIRE(trials.is_due(1000));
    CHECK(trials.choose(1000));  // A thousand that wait are served one by one for 1.7 s.
    CHECK(trials.present() == 0);
    run(barred - 1);
    CHECK(trials.present() == 0);
    run(barred + 1);  // A round comes only now and then.
    CHECK(trials.present() == 1);
  }
}

TEST_CASE("a present that is none of the candidates is refused") {
  const stage_profile p = flat();
  CHECK_THROWS_AS(make(p, {1, 2}, 2), config_error);
}

}  // namespace
}  // namespace cohort::batching::policy_trials_test
