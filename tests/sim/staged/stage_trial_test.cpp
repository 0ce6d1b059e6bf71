// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/staged/stage_trial.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::sim::stage_trial_test {
namespace {
using namespace std::chrono_literals;
using batching::batch_time;
using batching::slicing;
using operator_times = std::vector<std::vector<batch_time>>;

/// Flat up to p, then in proportion.
std::vector<batch_time> shape(duration t, std::uint32_t p) {
  std::vector<batch_time> m;
  for (const std::uint32_t b : {1U, 2U, 4U, 8U, 16U}) m.push_back({b, t * std::max(1U, b / p)});
  return m;
}
/// Prefers 16, 16, 1 and 1: 20 ms at any batch, and 2 ms a request.
operator_times unlike() { return {shape(10ms, 16), shape(10ms, 16), shape(1ms, 1), shape(1ms, 1)}; }

TEST_CASE("one request takes its stages and a hand-over for each") {
  const stage_trial t =
      try_stage_counts(unlike(), {.hand_over = 3ms, .most_stages = 9, .requests = 1});
  REQUIRE(t.tried.size() == 4);  // No more stages than operators.
  CHECK(t.tried[0].mean_ms == 25);
  CHECK(t.tried[1].mean_ms == 28);
  CHECK(t.tried[2].mean_ms == 31);
  CHECK(t.tried[3].mean_ms == 34);
  CHECK(t.best == 0);
  CHECK(t.ends() == slicing{4});
  // 16 requests take 20 + 32 + 3 ms, 8 take 20 + 16 + 3.
  CHECK(t.rate_rps == doctest::Approx(0.6 * 16 / 0.055));
}
TEST_CASE("each row takes what it costs beside its stages, however many they are") {
  const stage_trial t = try_stage_counts(
      unlike(), {.hand_over = 3ms, .rows = {{4, 5ms}, {1, 2ms}, {8, 9ms}}, .requests = 1});
  CHECK(t.tried[0].mean_ms == 27);
  CHECK(t.tried[3].mean_ms == 36);
  // 16 requests take what 8 do: 9 ms beside 20 + 32 + 3.
  CHECK(t.rate_rps == doctest::Approx(0.6 * 16 / 0.064));
  CHECK_THROWS_AS((void)try_stage_counts(unlike(), {.rows = {{0, 5ms}}}), config_error);
}
TEST_CASE("counts that make no difference leave a model whole") {
  const stage_trial t = try_stage_counts(unlike(), {.requests = 1});
  CHECK(t.tried[3].mean_ms == 22);
  CHECK(t.best == 0);
}
TEST_CASE("hand-overs that cost more than the work leave a model whole") {
  const stage_trial t = try_stage_counts(unlike(), {.hand_over = 1s, .requests = 1000});
  CHECK(t.best == 0);
  for (std::size_t i = 1; i < t.tried.size(); ++i) {
    CHECK(t.tried[i].mean_ms > t.tried[0].mean_ms);
  }
}
TEST_CASE("operators that prefer other batches are cut apart where it costs nothing") {
  const stage_trial t = try_stage_counts(unlike(), {.requests = 4000});
  CHECK(t.best > 0);
  CHECK(t.tried[1].ends == slicing{2, 4});
  CHECK(t.tried[1].mean_ms < t.tried[0].mean_ms);
  CHECK(t.tried[t.best].mean_ms <= t.tried[1].mean_ms);
}
TEST_CASE("a trial is the same for the same seed, and another for another") {
  const stage_trial_options o{.hand_over = 100us, .requests = 500};
  const stage_trial one = try_stage_counts(unlike(), o);
  const stage_trial two = try_stage_counts(unlike(), o);
  stage_trial_options other = o;
  other.seed = 2;
  const stage_trial three = try_stage_counts(unlike(), other);
  CHECK(one.best == two.best);
  for (std::size_t i = 0; i < one.tried.size(); ++i) {
    CHECK(one.tried[i].mean_ms == two.tried[i].mean_ms);
    CHECK(one.tried[i].ends == three.tried[i].ends);
    CHECK(one.tried[i].mean_ms != three.tried[i].mean_ms);
  }
}
TEST_CASE("entry and buffer sets are those of the trial's options") {
  using batching::entry_rule;
  const auto mean = [](entry_rule entry, std::uint32_t sets) {
    return try_stage_counts(unlike(), {.requests = 500, .buffer_sets = sets, .entry = entry})
        .tried[3]
        .mean_ms;
  };
  CHECK(mean(entry_rule::idle, 2) != mean(entry_rule::stage_free, 2));
  CHECK(mean(entry_rule::stage_free, 1) != mean(entry_rule::stage_free, 2));
}
TEST_CASE("options outside their range and operators without measurements are refused") {
  const operator_times ops = unlike();
  const stage_trial_options bad[] = {
      {.batch_max = 0}, {.batch_max = 32},  {.hand_over = -1ns},
      {.load = 0},      {.load = 1},        {.most_stages = 0},
      {.requests = 0},  {.buffer_sets = 0}, {.requests = 10'000'001},
  };
  for (const stage_trial_options& o : bad)
    CHECK_THROWS_AS((void)try_stage_counts(ops, o), config_error);
  CHECK_THROWS_AS((void)try_stage_counts({}, {}), config_error);
  CHECK_THROWS_AS((void)try_stage_counts(operator_times{{}}, {}), config_error);
  CHECK_THROWS_AS((void)try_stage_counts(operator_times{{{16, 0ns}}}, {}), config_error);
}

}  // namespace
}  // namespace cohort::sim::stage_trial_test
