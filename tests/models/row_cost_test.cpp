// SPDX-License-Identifier: Apache-2.0
#include <models/row_cost.hpp>

#include <doctest/doctest.h>

#include <cstdint>

namespace cohort::models::row_cost_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("plans charge the hand-over themselves, so the points are without it") {
  const row_cost cost{.rows = {{1, 30us}, {2, 50us}, {4, 90us}}, .hand_over = 40us};
  const auto rows = cost.beside_hand_over();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].time == 0us);
  CHECK(rows[1].time == 10us);
  CHECK(rows[2].batch == 4);
  const auto points = cost.points(2);
  REQUIRE(points.size() == 6);
  for (std::uint32_t k = 0; k < 2; ++k) {
    CHECK(points[3 * k].batch == 1);
    CHECK(points[3 * k].bucket == k);
    CHECK(points[3 * k].time == 0us);
    CHECK(points[3 * k + 1].time == 10us);
    CHECK(points[3 * k + 2].batch == 4);
    CHECK(points[3 * k + 2].time == 50us);
  }
}
TEST_CASE("copies are apart where they take longer than two hand-overs") {
  row_cost cost{.rows = {{1, 30us}, {2, 50us}, {4, 90us}}, .hand_over = 30us};
  CHECK(cost.copies() == batching::copy_rule::together);
  cost.hand_over = 29us;
  CHECK(cost.copies() == batching::copy_rule::apart);
}
}  // namespace
}  // namespace cohort::models::row_cost_test
