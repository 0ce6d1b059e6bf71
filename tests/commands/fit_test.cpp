// SPDX-License-Identifier: Apache-2.0
#include <commands/fit.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace cohort::commands::fit_test {
namespace {

TEST_CASE("a line is found exactly") {
  const std::vector<fit_point> points{{1, 6.125}, {2, 7.178}, {8, 13.496}, {32, 38.768}};
  const linear_fit f = fit_line(points);  // 5.072 + 1.053 b.
  CHECK(f.alpha_ms == doctest::Approx(1.053));
  CHECK(f.beta_ms == doctest::Approx(5.072));
  CHECK(f.error < 1e-9);
}

TEST_CASE("one point is all alpha") {
  const std::vector<fit_point> points{{4, 8.0}};
  const linear_fit f = fit_line(points);
  CHECK(f.alpha_ms == doctest::Approx(2));
  CHECK(f.beta_ms == 0);
}

TEST_CASE("neither alpha nor beta is negative") {
  const std::vector<fit_point> convex{{1, 1.0}, {2, 3.0}, {4, 8.0}};
  CHECK(fit_line(convex).beta_ms == 0);
  CHECK(fit_line(convex).alpha_ms > 0);
  const std::vector<fit_point> falling{{1, 4.0}, {2, 3.0}};
  const linear_fit f = fit_line(falling);
  CHECK(f.alpha_ms == 0);
  CHECK(f.beta_ms == doctest::Approx((4.0 / 16 + 3.0 / 9) / (1.0 / 16 + 1.0 / 9)));
  CHECK(f.beta_ms == doctest::Approx(3.36));
  CHECK(f.error == doctest::Approx(0.16));  // At batch 1.
}

}  // namespace
}  // namespace cohort::commands::fit_test
