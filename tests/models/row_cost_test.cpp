// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <cohort/batching/slicer.hpp>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <cstddef>
#include <vector>

#include <models/row_cost.hpp>

namespace cohort::models {
namespace {
using namespace std::chrono_literals;

TEST_CASE("rows of every measured size go through a model that does nothing") {
  runtime::host_executor e{{.pool_bytes = std::size_t{64} << 20U}};
  const std::size_t room = e.free_bytes();
  const auto factory = make_host_factory("lenet", e, 1);
  const std::size_t weights = room - e.free_bytes();
  const row_cost cost = measure_rows(*factory, e, 6, 3);
  CHECK(cost.hand_over >= 0ns);
  const auto& rows = cost.rows;
  REQUIRE(rows.size() == 4);
  const std::vector<std::uint32_t> sizes{1, 2, 4, 6};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i].batch == sizes[i]);
    CHECK(rows[i].time > 0ns);
    if (i > 0) CHECK(rows[i].time >= rows[i - 1].time);  // Measurements that fall are raised.
  }
  CHECK(room - e.free_bytes() == weights);
  CHECK_THROWS_AS((void)measure_rows(*factory, e, 0, 3), config_error);
  CHECK_THROWS_AS((void)measure_rows(*factory, e, 6, 0), config_error);
}
TEST_CASE("plans charge the hand-over themselves, so the points are without it") {
  const row_cost cost{.rows = {{1, 30us}, {2, 50us}, {4, 90us}}, .hand_over = 40us};
  const auto points = row_points(cost, 2);
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
}  // namespace
}  // namespace cohort::models
