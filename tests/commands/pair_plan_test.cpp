// SPDX-License-Identifier: Apache-2.0
#include <commands/pair_plan.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace cohort::commands::pair_plan_test {
namespace {

TEST_CASE("splits fill a device as far as the sizes can") {
  using splits = std::vector<partition_split>;
  CHECK(splits_of(std::vector<std::uint32_t>{50}) == splits{{50, 50}});
  CHECK(splits_of(std::vector<std::uint32_t>{20, 40, 50, 60, 80}) ==
        splits{{20, 80}, {40, 60}, {50, 50}, {60, 40}, {80, 20}});
  CHECK(splits_of(std::vector<std::uint32_t>{30, 50}) == splits{{30, 50}, {50, 30}, {50, 50}});
  CHECK(splits_of(std::vector<std::uint32_t>{60, 80}).empty());
  CHECK(splits_of({}).empty());
}
TEST_CASE("every batch meets every batch of the other on every split") {
  const std::vector<std::vector<std::uint32_t>> batches{{1, 8}, {1, 4, 16}};
  const std::vector<partition_split> halves{{50, 50}};
  const std::vector<partition_split> uneven{{20, 80}, {80, 20}};
  CHECK(cases_of({0, 1}, batches, halves).size() == 6);
  CHECK(cases_of({0, 1}, batches, uneven).size() == 12);
  // With itself: 1+1, 1+8, 8+8; and on uneven parts 1+1, 1+8, 8+1, 8+8.
  CHECK(cases_of({0, 0}, batches, halves).size() == 3);
  CHECK(cases_of({0, 0}, batches, uneven).size() == 4);
  const pair_case first = cases_of({0, 1}, batches, uneven).front();
  CHECK(first == pair_case{{0, 1, 20}, {1, 1, 80}});
}
TEST_CASE("rounds have every pair once, and in a round every model has one neighbour") {
  for (std::size_t n = 1; n <= 9; ++n) {
    for (const std::uint64_t seed : {1U, 2U}) {
      CAPTURE(n);
      CAPTURE(seed);
      std::set<model_pair> seen;
      const auto rounds = rounds_of(n, seed);
      for (const auto& round : rounds) {
        std::vector<int> neighbours(n, 0);
        for (const auto& [a, b] : round) {
          CHECK(a <= b);
          CHECK(seen.insert({a, b}).second);
          ++neighbours.at(a);
          if (a != b) ++neighbours.at(b);
        }
        CHECK(std::ranges::count(neighbours, 1) + static_cast<std::ptrdiff_t>(n % 2) >=
              static_cast<std::ptrdiff_t>(n));
        CHECK(std::ranges::max(neighbours) == 1);
      }
      CHECK(seen.size() == n * (n + 1) / 2);
      CHECK(rounds == rounds_of(n, seed));
    }
  }
}
TEST_CASE("three rounds are enough where no error is known") {
  enough_rounds e;
  e.add({});
  e.add({});
  CHECK_FALSE(e.reached());
  e.add({});
  CHECK(e.reached());
}
TEST_CASE("rounds go on while the error falls by a twentieth") {
  enough_rounds e;
  for (const double error : {0.5, 0.4, 0.3, 0.2, 0.195}) {
    e.add(error);
    CHECK_FALSE(e.reached());
  }
  e.add(0.191);  // More than 0.95 * 0.2, the second time in a row.
  CHECK(e.reached());
}

}  // namespace
}  // namespace cohort::commands::pair_plan_test
