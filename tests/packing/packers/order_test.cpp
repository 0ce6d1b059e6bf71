// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/order.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::order_test {
namespace {
using models = std::vector<std::uint32_t>;

TEST_CASE("models come by rate, by rate times SLO or by load; equal ones as in the grid") {
  const latency_grid g{{test::unit_model("a", 10), test::unit_model("b", 100),
                        test::unit_model("c", 10), test::unit_model("d", 50)},
                       test::halves()};
  const packing_problem p{.gpus = 1, .rates_rps = {300, 200, 300, 0}};
  CHECK(ordered_models(rate_descending{}, g, p) == models{0, 2, 1});
  CHECK(ordered_models(rate_slo_ascending{}, g, p) == models{0, 2, 1});  // 3000, 3000, 20000.
  const packing_problem q{.gpus = 1, .rates_rps = {300, 20, 310, 0}};
  CHECK(ordered_models(rate_slo_ascending{}, g, q) == models{1, 0, 2});
  // 20 / 889, 300 / 800, 310 / 800.
  CHECK(ordered_models(load_descending{}, g, q) == models{2, 0, 1});
}
}  // namespace
}  // namespace cohort::packing::order_test
