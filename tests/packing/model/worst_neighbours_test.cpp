// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/worst_neighbours.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace cohort::packing::worst_neighbours_test {
namespace {

const model_profile net{.name = "net", .usage = {{1, 0.2, 0.4}, {5, 0.6, 0.8}}};
constexpr interference_model paper{
    .l2_self = 0.1, .l2_other = 0.5, .memory_self = 0.2, .memory_other = 0.3, .constant = 0.9};

TEST_CASE("the worst neighbours take all the room there is, in as many parts as allowed") {
  const std::array models{net};
  const std::array<std::uint32_t, 3> sizes{30, 60, 80};
  const device_usage self{.l2 = 0.4, .memory = 0.5};
  // Worst other on a whole device: 0.5 * 0.6 + 0.3 * 0.8 = 0.54; self: 0.14.
  const worst_neighbours one{paper, models, sizes, 2};
  CHECK(one.factor(self, 40) == doctest::Approx(1.364));  // 0.14 + 0.6 * 0.54 + 0.9.
  CHECK(one.factor(self, 30) == doctest::Approx(1.364));  // 80 does not fit beside 30.
  CHECK(one.factor(self, 80) == 1);                       // Nothing fits beside 80.
  CHECK(one.factor(self, 100) == 1);
  // Two of 30: 2 * (0.14 + 0.3 * 0.54 + 0.9 - 1) = 0.404, more than one of 60.
  const worst_neighbours two{paper, models, sizes, 3};
  CHECK(two.factor(self, 40) == doctest::Approx(1.404));
  const worst_neighbours none{paper, models, sizes, 1};
  CHECK(none.factor(self, 20) == 1);
}
TEST_CASE("models whose usage is not known are as bad as measured, on any size") {
  model_profile counted = net;
  counted.beside = {9, 1.7};  // The first, itself, has a usage: the fit tells.
  const model_profile bare{.name = "bare", .beside = {1.3, 1.1}};
  const std::array models{counted, bare};
  const std::array<std::uint32_t, 2> sizes{20, 60};
  const worst_neighbours one{paper, models, sizes, 2};
  CHECK(one.factor(bare, 1, 40) == doctest::Approx(1.3));
  CHECK(one.factor(bare, 1, 60) == doctest::Approx(1.3));  // Beside it 20 fits.
  CHECK(one.factor(bare, 1, 100) == 1);
  // Next to bare 1.7; next to itself 0.4 (0.1 * 0.6 + 0.2 * 0.8) + 0.6 * 0.54 + 0.9 = 1.312.
  CHECK(one.factor(counted, 5, 40) == doctest::Approx(1.7));
  const std::array alone{counted};
  CHECK(worst_neighbours{paper, alone, sizes, 2}.factor(counted, 5, 40) == doctest::Approx(1.312));
  // Three of 20 beside 40: excesses add.
  const worst_neighbours three{paper, models, sizes, 4};
  CHECK(three.factor(bare, 1, 40) == doctest::Approx(1.9));
}
}  // namespace
}  // namespace cohort::packing::worst_neighbours_test
