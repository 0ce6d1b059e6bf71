// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/latency_grid.hpp>

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include <packing/random_demand.hpp>

namespace cohort::packing::latency_grid_test {
namespace {
using test::halves;
using test::unit_model;

TEST_CASE("capacity is the best b / L(b) with twice L(b) within the SLO") {
  const latency_grid g{{unit_model("a", 10), unit_model("b", 20)}, halves()};
  CHECK(g.models() == 2);
  CHECK(g.sizes() == 2);
  CHECK(g.size_pct(1) == 100);
  CHECK(g.latency(0, 1, 3) == doctest::Approx(4));
  CHECK(g.latency(0, 0, 3) == doctest::Approx(8));
  CHECK(g.capacity_batch(0, 1) == 4);  // 2 * (1 + 4) = 10.
  CHECK(g.capacity_rps(0, 1) == doctest::Approx(800));
  CHECK(g.capacity_batch(1, 1) == 8);
  CHECK(g.capacity_rps(1, 0) == doctest::Approx(400));  // 2 * 2 (1 + b) <= 20: b = 4.
  CHECK(g.size_within(99) == 0);
  CHECK(g.size_within(100) == 1);
  CHECK_FALSE(g.size_within(49).has_value());
}
TEST_CASE("a batch that runs slower than a larger one is run as the larger one") {
  model_profile m = unit_model("a", 100);
  m.latency = {{1, 100, 5}, {2, 100, 4}, {3, 100, 6}, {4, 100, 3}, {5, 100, 9}};
  const latency_grid g{{m}, {.sizes = {100}}};
  const double expected[] = {3, 3, 3, 3, 9};
  const std::uint32_t batches[] = {4, 4, 4, 4, 5};
  for (std::uint32_t b = 1; b <= 5; ++b) {
    CHECK(g.latency(0, 0, b) == expected[b - 1]);
    CHECK(g.batch_for(0, 0, b) == batches[b - 1]);
  }
}
TEST_CASE("padding makes every latency that of the worst neighbours") {
  const interference_model c{
      .l2_self = 0.1, .l2_other = 0.5, .memory_self = 0.2, .memory_other = 0.3, .constant = 0.9};
  grid_options o = halves();
  o.pad_for = c;
  const latency_grid g{{unit_model("a", 10)}, o};
  // Batch 8 on a half: self 0.5 * (0.1 * 0.6 + 0.2 * 0.8) = 0.11; other, batch 8 too:
  // 0.5 * (0.5 * 0.6 + 0.3 * 0.8) = 0.27; 0.11 + 0.27 + 0.9 = 1.28.
  CHECK(g.latency(0, 0, 8) == doctest::Approx(18 * 1.28));
  CHECK(g.latency(0, 1, 8) == 9);
  model_profile bare = unit_model("a", 10);
  bare.usage.clear();
  CHECK_THROWS_AS(latency_grid({bare}, o), config_error);
}
TEST_CASE("padding of models without usage is by what was measured next to others") {
  grid_options o = halves();
  o.pad_for = interference_model{};
  model_profile a = unit_model("a", 10);
  model_profile b = unit_model("b", 10);
  for (model_profile* m : {&a, &b}) m->usage.clear();
  a.beside = {1.1, 1.5};
  b.beside = {1.25, 1};
  const latency_grid g{{a, b}, o};
  CHECK(g.latency(0, 0, 8) == doctest::Approx(18 * 1.5));
  CHECK(g.latency(1, 0, 8) == doctest::Approx(18 * 1.25));
  CHECK(g.latency(0, 1, 8) == 9);  // On all of the device there are no neighbours.
  using factors = std::vector<double>;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const factors& bad : {factors{1.5}, factors{1.5, 0.9}, factors{1.5, infinite}}) {
    a.beside = bad;
    CHECK_THROWS_AS(latency_grid({a, b}, o), config_error);
  }
}
TEST_CASE("a grid refuses what it cannot look up") {
  const auto refused = [](std::vector<model_profile> models, grid_options o) {
    CHECK_THROWS_AS(latency_grid(std::move(models), std::move(o)), config_error);
  };
  refused({}, halves());
  refused({unit_model("a", 1)}, {.sizes = {}});
  refused({unit_model("a", 1)}, {.sizes = {50, 50}});
  refused({unit_model("a", 1)}, {.sizes = {0, 50}});
  refused({unit_model("a", 1)}, {.sizes = {50, 101}});
  refused({unit_model("a", 1)}, {.sizes = {40}});
  refused({unit_model("a", 1)}, {.sizes = {50}, .max_gpulets_per_gpu = 0});
  refused({unit_model("a", 1), unit_model("a", 1)}, halves());
  refused({unit_model("", 1)}, halves());
  refused({unit_model("a", 0)}, halves());
  refused({unit_model("a", 1, -1)}, halves());
  model_profile m = unit_model("a", 1);
  m.usage[0].l2 = 1.5;
  refused({m}, halves());
  m.usage[0] = {.batch = 0, .l2 = 0, .memory = 0};
  refused({m}, halves());
}
}  // namespace
}  // namespace cohort::packing::latency_grid_test
