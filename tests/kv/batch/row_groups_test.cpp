// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/row_groups.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::row_groups_test {
namespace {

using spans = std::vector<std::uint64_t>;

TEST_CASE("two groups read less than one") {
  row_groups g{2};
  const auto groups = g.split(spans{3, 10, 9, 2});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0] == row_group{0, 2, 10});  // 2 × 10 + 2 × 3 = 26 instead of 40.
  CHECK(groups[1] == row_group{2, 2, 3});
  CHECK(std::vector<std::uint32_t>(g.order().begin(), g.order().end()) ==
        std::vector<std::uint32_t>{1, 2, 0, 3});
}

TEST_CASE("a launch that costs more than it saves is not made") {
  row_groups dear{4, 20};
  CHECK(dear.split(spans{3, 10, 9, 2}).size() == 1);  // 40 + 20 against 26 + 40.
  row_groups one{1};
  CHECK(one.split(spans{3, 10}).size() == 1);
}

TEST_CASE("empty rows are in no group") {
  row_groups g{3};
  CHECK(g.split(spans{0, 0}).empty());
  const auto groups = g.split(spans{0, 5, 0, 5});
  REQUIRE(groups.size() == 1);
  CHECK(groups[0] == row_group{0, 2, 5});
  CHECK_THROWS_AS(row_groups{0}, config_error);
}

/// The least cost over every split of the sorted spans, by trying all.
std::uint64_t best(const spans& sorted, std::size_t from, std::uint32_t groups,
                   std::uint64_t launch) {
  if (from == sorted.size()) return 0;
  std::uint64_t least = ~std::uint64_t{0};
  if (groups == 0) return least;
  for (std::size_t end = from + 1; end <= sorted.size(); ++end) {
    const std::uint64_t rest = best(sorted, end, groups - 1, launch);
    if (rest == ~std::uint64_t{0}) continue;
    least = std::min(least, launch + (end - from) * sorted[from] + rest);
  }
  return least;
}

TEST_CASE("no split is cheaper than the one chosen") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    spans s(1 + random.below(8U));
    for (std::uint64_t& x : s) x = 1 + random.below(50U);
    const std::uint32_t most = 1 + random.below(4U);
    const std::uint64_t launch = random.below(30U);
    row_groups g{most, launch};
    std::uint64_t cost = 0;
    std::uint32_t rows = 0;
    for (const row_group& r : g.split(s)) {
      REQUIRE(r.first == rows);
      rows += r.rows;
      cost += launch + r.rows * r.columns;
      for (std::uint32_t i = r.first; i < r.first + r.rows; ++i) {
        REQUIRE(s[g.order()[i]] <= r.columns);
      }
    }
    REQUIRE(rows == s.size());
    std::sort(s.rbegin(), s.rend());
    REQUIRE(cost == best(s, 0, most, launch));
  }
}

}  // namespace
}  // namespace cohort::kv::row_groups_test
