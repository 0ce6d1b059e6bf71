// SPDX-License-Identifier: Apache-2.0
#include <models/measure_rows.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/blas.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::models::measure_rows_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("rows of every size are measured, and nothing is left of it") {
  runtime::host_executor e{
      {.pool_bytes = std::size_t{64} << 20U, .products = runtime::blas_products()}};
  const auto factory = make_host_factory("lenet", e, 1);
  const std::size_t room = e.free_bytes();
  const row_cost cost = measure_rows(*factory, e, 6, 3);
  const std::vector<std::uint32_t> sizes{1, 2, 4, 6};
  REQUIRE(cost.rows.size() == sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK(cost.rows[i].batch == sizes[i]);
    CHECK(cost.rows[i].time > 0ns);
    if (i > 0) CHECK(cost.rows[i].time >= cost.rows[i - 1].time);  // What falls is raised.
  }
  CHECK(e.free_bytes() == room);
  CHECK_THROWS_AS((void)measure_rows(*factory, e, 0, 3), config_error);
  CHECK_THROWS_AS((void)measure_rows(*factory, e, 6, 0), config_error);
}
TEST_CASE("a row that runs through is one item, one that stops at every stage is many") {
  runtime::host_executor e;
  detail::row_timer<runtime::host_executor> rows{e, 100, 12, 4};
  CHECK(rows.items() == 6);  // Four stages and the copies.
  (void)rows.time_through(1);
  CHECK(rows.completions() == 1);
  (void)rows.time_through(4);
  CHECK(rows.completions() == 2);
  (void)rows.time_stepped();
  CHECK(rows.completions() == 2 + 6);
}
}  // namespace
}  // namespace cohort::models::measure_rows_test
