// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/workspace.hpp>

#include <doctest/doctest.h>

#include <packing/random_demand.hpp>

namespace cohort::packing::detail::workspace_test {
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
TEST_CASE("all of a device is cut, whatever its largest size is") {
  const auto at = [](std::uint32_t pct) { return latency_sample{1, pct, 10}; };
  const latency_grid g{{{.name = "a", .slo_ms = 100, .latency = {at(20), at(30), at(50), at(60)}}},
                       {.sizes = {20, 30, 50, 60}, .max_gpulets_per_gpu = 3}};
  const packing_problem p{.gpus = 1, .rates_rps = {1}};
  workspace halves{g, p};
  halves.assign(halves.cut(0, 2), 0, 1);  // 50 of 100.
  REQUIRE(halves.best_fit(2, 0) == 1);    // As much again.
  CHECK_FALSE(halves.best_fit(3, 0));
  halves.assign(halves.cut(1, 1), 0, 1);  // 30 of 50,
  REQUIRE(halves.best_fit(0, 0) == 2);    // and 20.
  halves.assign(2, 0, 1);
  CHECK(used_pct(halves.make_plan()) == 100);
  // The largest there is leaves 40, of which 30 can be used.
  workspace large{g, p};
  CHECK(large.cut_size(0, 3) == 3);
  large.assign(large.cut(0, 3), 0, 1);
  CHECK(large.best_fit(1, 0) == 1);
  CHECK_FALSE(large.best_fit(2, 0));
  // What goes where most fits leaves the rest of its device, too.
  workspace most{g, p};
  CHECK(most.take_largest(0, 1e6) == doctest::Approx(100));
  CHECK(most.take_largest(0, 1e6) == doctest::Approx(100));
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
}  // namespace cohort::packing::detail::workspace_test
