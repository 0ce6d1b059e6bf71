// SPDX-License-Identifier: Apache-2.0
#include <inference/warm_stages.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::inference::warm_stages_test {
namespace {

using namespace std::chrono_literals;

// Two sizes, two operators, batches of 1, 2 and 3.
measured_stages example() {
  measured_stages m;
  m.operators = {{{{1, 1ms}, {2, 2ms}, {3, 3ms}}, {{1, 4ms}, {2, 5ms}, {3, 6ms}}},
                 {{{1, 2ms}, {2, 4ms}, {3, 6ms}}, {{1, 8ms}, {2, 10ms}, {3, 12ms}}}};
  m.row.rows = {{1, 10us}, {2, 15us}, {3, 20us}};
  m.row.hand_over = 7us;
  return m;
}

TEST_CASE("kept stages are those that were measured") {
  const auto again = from_kept(to_kept({{"model", "a"}}, example()), 2, 2, 3);
  REQUIRE(again);
  CHECK(again->was_kept);
  REQUIRE(again->operators.size() == 2);
  REQUIRE(again->operators[1].size() == 2);
  CHECK(again->operators[1][1][2].batch == 3);
  CHECK(again->operators[1][1][2].time == 12ms);
  CHECK(again->operators[0][1][0].time == 4ms);
  REQUIRE(again->row.rows.size() == 3);
  CHECK(again->row.rows[1].time == 15us);
  CHECK(again->row.hand_over == 7us);
}

TEST_CASE("stages of other sizes, operators or batches are not taken") {
  const formats::kept_stages k = to_kept({{"model", "a"}}, example());
  CHECK_FALSE(from_kept(k, 1, 2, 3));
  CHECK_FALSE(from_kept(k, 2, 3, 3));
  CHECK_FALSE(from_kept(k, 4, 1, 3));  // As many points.
  CHECK_FALSE(from_kept(k, 2, 2, 4));  // Batches of 1, 2 and 4.
  formats::kept_stages fewer = k;
  fewer.rows.pop_back();
  CHECK_FALSE(from_kept(fewer, 2, 2, 3));
}

TEST_CASE("stages of other input sizes have another key") {
  const formats::start_key profile{{"model", "a"}};
  CHECK(stages_key(profile, {16, 64}) == formats::start_key{{"model", "a"}, {"sizes", "16,64"}});
  CHECK(stages_key(profile, {0}) != stages_key(profile, {64}));
}

}  // namespace
}  // namespace cohort::inference::warm_stages_test
