// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/budget.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace cohort::kv::budget_test {
namespace {

/// 10 bytes a column; 100 columns at most, 80 after shedding.
constexpr budget_options options{
    .high_bytes = 1000, .low_bytes = 800, .bytes_per_column = 10, .lookahead = 2};

TEST_CASE("the next column must fit under the high mark") {
  const kv_budget b{options};
  CHECK_FALSE(b.must_shed({4, 24, 64}));  // 4 × 25 = 100.
  CHECK(b.must_shed({4, 25, 64}));
  CHECK(b.must_shed({4, 20, 64}, 6));  // A shaped iteration of six.
  CHECK(b.is_relieved({4, 18, 64}));   // 4 × 20 = 80.
  CHECK_FALSE(b.is_relieved({4, 19, 64}));
}

TEST_CASE("what is no longer than max_length may enter, and nothing else") {
  const kv_budget b{options};
  CHECK(b.max_length({4, 10, 64}) == 23);  // 4 × (23 + 2) = 100.
  CHECK(b.max_length({4, 23, 64}) == 23);
  CHECK(b.max_length({4, 24, 64}) == 0);  // Already too long with its lookahead.
  CHECK(b.can_add_row({3, 10, 64}, 18));
  CHECK_FALSE(b.can_add_row({3, 10, 64}, 19));
}

TEST_CASE("a request that cannot run alone is known before it starts") {
  const kv_budget b{options};
  CHECK(b.can_run_alone(60, 40));
  CHECK_FALSE(b.can_run_alone(60, 41));
  CHECK_FALSE(b.can_run_alone(0xFFFFFFFF, 0xFFFFFFFF));
}

TEST_CASE("a ring holds old and new memory while it grows") {
  budget_options o = options;
  o.commit = kv_commit::ring;
  const kv_budget b{o};
  CHECK(b.peak_bytes({1, 30, 32}, 32) == 320);
  CHECK(b.peak_bytes({1, 32, 32}, 33) == 960);  // 32 + 64.
  CHECK(b.peak_bytes({1, 10, 16}, 33) == 960);  // By way of 32.
  CHECK(b.can_run_alone(32, 32, 16));
  CHECK_FALSE(b.can_run_alone(32, 33, 16));  // 64 + 128.
}

TEST_CASE("a short row is the victim: it frees a whole row for few bytes") {
  const kv_budget b{options};
  // L = 100, 90, 10: without the shortest 3 × 100 − 2 × 100 = 100 for 10 moved; without the
  // longest 300 − 180 = 120 for 100.
  const std::vector<victim_view> live = {{100, 100}, {90, 90}, {10, 10}};
  CHECK(b.victim(live) == 2);
}

TEST_CASE("the longest row is the victim only where it alone makes L long") {
  const kv_budget b{options};
  // Without the longest 300 − 2 × 4 = 292 for 100: 2.9. Without another 100 for 4: 25.
  CHECK(b.victim(std::vector<victim_view>{{100, 100}, {4, 4}, {4, 4}}) == 1);
  // A long span that owns little, after shaping: 292 for 3.
  CHECK(b.victim(std::vector<victim_view>{{100, 3}, {4, 4}, {4, 4}}) == 0);
}

TEST_CASE("priority counts first, residency before it, and the only row stays") {
  const kv_budget b{options};
  std::vector<victim_view> live = {{100, 100, 0, 2}, {90, 90, 0, 1}, {10, 10, 0, 1}};
  CHECK(b.victim(live) == 0);
  live[0].was_running = true;  // Restored just now.
  CHECK(b.victim(live) == 2);
  live[0].stayed = 16;
  CHECK(b.victim(live) == 0);
  CHECK(b.victim(std::vector<victim_view>{{100, 100}}) == no_victim);
  CHECK(b.victim(std::vector<victim_view>{}) == no_victim);
}

TEST_CASE("bytes saturate and options are checked") {
  const kv_budget b{{.high_bytes = 1, .low_bytes = 1, .bytes_per_column = 1U << 20U}};
  CHECK(b.peak_bytes({1U << 16U, 0, 0}, std::uint64_t{1} << 40U) ==
        std::numeric_limits<std::uint64_t>::max());
  CHECK(b.max_length({1, 0, 0}) == 0);
  CHECK_THROWS_AS((kv_budget{{.high_bytes = 0, .bytes_per_column = 1}}), config_error);
  CHECK_THROWS_AS((kv_budget{{.high_bytes = 1, .low_bytes = 2, .bytes_per_column = 1}}),
                  config_error);
  CHECK_THROWS_AS((kv_budget{{.high_bytes = 1, .bytes_per_column = 0}}), config_error);
  CHECK_THROWS_AS((kv_budget{{.high_bytes = 1, .bytes_per_column = 1, .lookahead = 0}}),
                  config_error);
}

}  // namespace
}  // namespace cohort::kv::budget_test
