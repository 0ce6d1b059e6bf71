// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/detail/cover_lp.hpp>

#include <doctest/doctest.h>

#include <support/random_source.hpp>

namespace cohort::packing::detail::cover_lp_test {
namespace {
using table = std::vector<std::vector<std::vector<double>>>;  // Group, column, model.

/// The oracle over a list, which is scanned.
auto scanning(const table& columns) {
  return [&columns](std::size_t g, std::span<const double> prices) {
    const std::vector<double>* best = nullptr;
    double most = -1;
    for (const std::vector<double>& c : columns[g]) {
      double worth = 0;
      for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * c[i];
      if (worth > most) {
        most = worth;
        best = &c;
      }
    }
    return std::span<const double>{*best};
  };
}

TEST_CASE("a mixture of two columns covers more than either") {
  // One place, columns (1, 0) and (0, 1), demand (1, 1): half of each covers half of both.
  const table columns{{{1, 0}, {0, 1}}};
  cover_lp lp;
  const std::vector<double> count{1};
  const std::vector<double> demand{1, 1};
  lp.solve(count, demand, scanning(columns));
  CHECK(lp.covered() == doctest::Approx(0.5).epsilon(1e-5));
  CHECK(lp.prices()[0] == doctest::Approx(0.5));
  CHECK(lp.prices()[1] == doctest::Approx(0.5));
}
TEST_CASE("groups share the demand, each within its count") {
  // Two places that carry 3 of the first or 1 of both, one that carries 4 of the second.
  const table columns{{{3, 0}, {1, 1}}, {{0, 4}}};
  cover_lp lp;
  const std::vector<double> count{2, 1};
  const std::vector<double> demand{6, 4};
  lp.solve(count, demand, scanning(columns));
  CHECK(lp.covered() == doctest::Approx(1).epsilon(1e-5));
}
TEST_CASE("what is covered meets the bound of the prices: both are optimal") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::size_t models = 1 + random.below(6U);
    table columns(1 + random.below(4U));
    std::vector<double> count;
    std::vector<double> demand;
    for (auto& group : columns) {
      count.push_back(1 + random.below(4U));
      group.resize(1 + random.below(40U));
      for (auto& c : group) {
        for (std::size_t i = 0; i < models; ++i)
          c.push_back(random.one_in(3) ? 0 : random.below(100U));
      }
    }
    for (std::size_t i = 0; i < models; ++i) demand.push_back(1 + random.below(300U));
    cover_lp lp;
    lp.solve(count, demand, scanning(columns));
    double bound = 0;
    double sum = 0;
    for (std::size_t g = 0; g < columns.size(); ++g) {
      const std::span<const double> best = scanning(columns)(g, lp.prices());
      for (std::size_t i = 0; i < models; ++i) bound += count[g] * lp.prices()[i] * best[i];
    }
    for (std::size_t i = 0; i < models; ++i) {
      CHECK(lp.prices()[i] >= 0);
      sum += lp.prices()[i] * demand[i];
    }
    CHECK(sum == doctest::Approx(1));
    // The starting values that keep steps from being empty add at most 1e-7.
    CHECK(lp.covered() == doctest::Approx(bound).epsilon(1e-5));
  }
}
}  // namespace
}  // namespace cohort::packing::detail::cover_lp_test
