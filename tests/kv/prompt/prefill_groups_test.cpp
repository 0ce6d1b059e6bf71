// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/prefill_groups.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::prefill_groups_test {
namespace {

using list = std::vector<std::uint32_t>;

list group(prefill_groups& g, const list& lengths) {
  const auto s = g.next(lengths);
  return {s.begin(), s.end()};
}

TEST_CASE("the group is built around the first prompt, nearest lengths first") {
  prefill_groups g{{.max_rows = 3, .max_waste = 0.5}};
  // 10 takes 9 (pads 1), then 11 (pads 1 for each of two) rather than 6 (pads 4).
  CHECK(group(g, {10, 6, 11, 9, 40}) == list{3, 0, 2});
}

TEST_CASE("the bound on padding splits what does not belong together") {
  prefill_groups g{{.max_rows = 8, .max_waste = 0.25}};
  CHECK(prefill_groups::waste(list{4, 8}) == doctest::Approx(4.0 / 12));
  CHECK(group(g, {4, 8}) == list{0});     // 0.33 > 0.25.
  CHECK(group(g, {5, 8}) == list{0, 1});  // 3 / 13 = 0.23.
  prefill_groups equal{{.max_rows = 8, .max_waste = 0}};
  CHECK(group(equal, {7, 5, 7, 6, 7}) == list{0, 2, 4});
}

TEST_CASE("rows and positions are limited, but one prompt alone never is") {
  prefill_groups g{{.max_rows = 2, .max_waste = 10, .max_positions = 20}};
  CHECK(group(g, {9, 9, 9}) == list{0, 1});
  CHECK(group(g, {15, 10}) == list{0});
  CHECK(group(g, {100}) == list{0});
  CHECK(group(g, {}).empty());
}

TEST_CASE("bad limits are refused") {
  CHECK_THROWS_AS((prefill_groups{{.max_rows = 0}}), config_error);
  CHECK_THROWS_AS((prefill_groups{{.max_waste = -0.1}}), config_error);
  CHECK_THROWS_AS((prefill_groups{{.max_waste = std::numeric_limits<double>::quiet_NaN()}}),
                  config_error);
}

TEST_CASE("every group keeps the limits and holds the first prompt; all are served") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const prefill_limits limits{.max_rows = 1 + random.below(8U),
                                .max_waste = 0.1 * random.below(6),
                                .max_positions = random.one_in(2) ? 0U : 1 + random.below(200U)};
    prefill_groups g{limits};
    list left(1 + random.below(40U));
    for (std::uint32_t& m : left) m = 1 + random.below(60U);
    while (!left.empty()) {
      const list chosen = group(g, left);
      REQUIRE(std::ranges::find(chosen, 0U) != chosen.end());
      REQUIRE(std::set<std::uint32_t>(chosen.begin(), chosen.end()).size() == chosen.size());
      REQUIRE(chosen.size() <= limits.max_rows);
      list lengths;
      for (const std::uint32_t i : chosen) lengths.push_back(left[i]);
      REQUIRE(std::ranges::is_sorted(lengths));
      REQUIRE(prefill_groups::waste(lengths) <= limits.max_waste + 1e-12);
      if (limits.max_positions > 0 && lengths.size() > 1) {
        REQUIRE(lengths.size() * lengths.back() <= limits.max_positions);
      }
      for (auto i = left.size(); i-- > 0;) {
        if (std::ranges::find(chosen, static_cast<std::uint32_t>(i)) != chosen.end()) {
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::kv::prefill_groups_test
