// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/workspace.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::detail {
namespace {

TEST_CASE("a cut leaves the rest free; the smallest free gpu-let that is large enough is best") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {1}};
  workspace w{g, p};
  REQUIRE(w.best_fit(0, 0) == 0);
  CHECK(w.cut_size(0, 0) == 0);
  w.assign(w.cut(0, 0), 0, 100);
  CHECK(w.best_fit(0, 0) == 2);  // The other half.
  CHECK(w.best_fit(1, 0) == 1);  // The second device.
  CHECK(w.cut_size(2, 0) == 0);
  w.assign(2, 0, 50);
  w.assign(2, 0, 50);
  const plan made = w.make_plan();
  REQUIRE(made.size() == 2);
  CHECK(made[1].models[0].rate_rps == 100);
  CHECK(used_pct(made) == 100);
}
TEST_CASE("the rest of a rate goes where most fits, of equals to the smallest gpu-let") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {1}};
  workspace w{g, p};
  w.assign(w.cut(0, 0), 0, 400);
  CHECK(w.take_largest(0, 40) == 40);  // The first half has room for 44.4.
  CHECK(w.take_largest(0, 300) == doctest::Approx(300));
  CHECK(used_pct(w.make_plan()) == 100);
  CHECK(w.take_largest(0, 2000) == doctest::Approx(8000 / 9.0));  // The free device.
}
}  // namespace
}  // namespace cohort::packing::detail
