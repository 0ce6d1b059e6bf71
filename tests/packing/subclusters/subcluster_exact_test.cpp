// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/subclusters/subcluster_exact.hpp>

#include <doctest/doctest.h>

#include <packing/subclusters/random_subclusters.hpp>

namespace cohort::packing::subcluster_exact_test {
namespace {

/// The best of all count^models assignments.
double best_of_all(const subcluster_problem& p) {
  double best = std::numeric_limits<double>::infinity();
  subcluster_assignment a(p.models.size(), 0);
  for (;;) {
    if (verify(p, a).empty()) best = std::min(best, evaluate(p, a).objective);
    std::size_t i = 0;
    while (i < a.size() && ++a[i] == p.count) a[i++] = 0;
    if (i == a.size()) return best;
  }
}

TEST_CASE("a complete search finds the best of all assignments, or proves that there is none") {
  int none = 0;
  int with_budget = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    subcluster_problem p = test::random_subclusters(
        random, 2 + random.below(5U), 1 + random.below(3U), 0.9 + test::uniform(random));
    if (random.one_in(2)) {
      for (std::size_t i = 0; i < p.models.size(); ++i) p.current.push_back(random.below(p.count));
      p.max_move_cost = random.below(4U);
      ++with_budget;
    }
    const double best = best_of_all(p);
    const subcluster_proof proof = subcluster_exact{p, 1'000'000}.solve();
    CHECK(proof.complete);
    REQUIRE(proof.best.empty() == std::isinf(best));
    if (!why_impossible(p).empty()) CHECK(std::isinf(best));
    if (std::isinf(best)) {
      ++none;
      continue;
    }
    CHECK(proof.objective == doctest::Approx(best));
    CHECK(verify(p, proof.best).empty());
    CHECK(subcluster_bound(p) <= best + 1e-9);
  }
  CHECK(none > 10);
  CHECK(with_budget > 30);
}
TEST_CASE("a search that is cut proves nothing") {
  cohort::test::random_source random{1};
  const subcluster_problem p = test::random_subclusters(random, 12, 3, 2);
  CHECK_FALSE(subcluster_exact{p, 20}.solve().complete);
}
}  // namespace
}  // namespace cohort::packing::subcluster_exact_test
