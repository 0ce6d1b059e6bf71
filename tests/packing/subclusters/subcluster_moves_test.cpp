// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/subclusters/subcluster_moves.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/subclusters/subcluster_exact.hpp>

#include <packing/subclusters/random_subclusters.hpp>

#include <algorithm>
#include <numeric>

namespace cohort::packing::subcluster_moves_test {
namespace {

TEST_CASE("a current assignment that is worth as much is kept") {
  subcluster_problem p{
      .models = {{.rate_rps = 10}, {.rate_rps = 20}, {.rate_rps = 30}, {.rate_rps = 40}},
      .count = 2,
      .current = {0, 1, 1, 0}};
  CHECK(with_fewest_moves(p, {1, 0, 0, 1}) == p.current);
  CHECK(with_fewest_moves(p, subcluster_exact{p, 1000}.solve().best) == p.current);
  // Not if it breaks a cap: of the same worth, one that keeps it.
  p.models[3].rate_rps = 10;
  p.models[0].rate_rps = 40;
  p.current = {0, 1, 1, 0};
  p.models[0].static_mb = 5;
  p.models[3].static_mb = 5;
  p.weight = 0;
  p.memory_mb = 9;
  CHECK(with_fewest_moves(p, {0, 1, 0, 1}) == subcluster_assignment{0, 1, 0, 1});
  p.current.clear();
  CHECK(with_fewest_moves(p, {1, 0, 1, 0}) == subcluster_assignment{1, 0, 1, 0});
}
TEST_CASE("of all ways to number the sub-clusters none moves less") {
  cohort::test::random_source random{3};
  for (int run = 0; run < 300; ++run) {
    const std::uint32_t count = 1 + random.below(5U);
    subcluster_problem p = test::random_subclusters(random, 1 + random.below(14U), count, 100);
    subcluster_assignment a;
    for (subcluster_model& m : p.models) {
      m.move_cost = random.below(5U);
      p.current.push_back(random.below(count));
      a.push_back(random.below(count));
    }
    if (evaluate(p, p.current).objective <= evaluate(p, a).objective) continue;
    std::vector<std::uint32_t> number(count);
    std::iota(number.begin(), number.end(), 0U);
    double least = evaluate(p, a).move_cost;
    do {
      subcluster_assignment renamed = a;
      for (std::uint32_t& j : renamed) j = number[j];
      least = std::min(least, evaluate(p, renamed).move_cost);
    } while (std::ranges::next_permutation(number).found);
    const subcluster_assignment b = with_fewest_moves(p, a);
    CHECK(evaluate(p, b).move_cost == least);
    CHECK(evaluate(p, b).objective == doctest::Approx(evaluate(p, a).objective));
    // Greedy: never more than before, and the same sub-clusters.
    const subcluster_assignment c = with_fewest_moves(p, a, 0);
    CHECK(evaluate(p, c).move_cost <= evaluate(p, a).move_cost);
    CHECK(evaluate(p, c).objective == doctest::Approx(evaluate(p, a).objective));
  }
}
}  // namespace
}  // namespace cohort::packing::subcluster_moves_test
