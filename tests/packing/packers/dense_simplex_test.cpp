// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/dense_simplex.hpp>

#include <doctest/doctest.h>

#include <array>

namespace cohort::packing::detail::dense_simplex_test {
namespace {

TEST_CASE("a program worked by hand") {
  // 3 x + 2 y with x + y <= 4, x + 3 y <= 6, x <= 3: (3, 1), worth 11.
  dense_simplex lp{{3, 2}};
  lp.add_row(std::array{1.0, 1.0}, 4);
  lp.add_row(std::array{1.0, 3.0}, 6);
  lp.add_row(std::array{1.0, 0.0}, 3);
  std::vector<double> x = lp.solve();
  CHECK(x[0] == doctest::Approx(3));
  CHECK(x[1] == doctest::Approx(1));
  // y at most x / 4.
  lp.add_row(std::array{-0.25, 1.0}, 0);
  x = lp.solve();
  CHECK(x[0] == doctest::Approx(3));
  CHECK(x[1] == doctest::Approx(0.75));
  CHECK(lp.solve(0) == std::vector<double>{0, 0});
}
TEST_CASE("an unbounded program ends where it found out") {
  dense_simplex lp{{1, 1}};
  lp.add_row(std::array{1.0, -1.0}, 2);
  CHECK(lp.solve().size() == 2);
}
}  // namespace
}  // namespace cohort::packing::detail::dense_simplex_test
