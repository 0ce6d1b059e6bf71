// SPDX-License-Identifier: Apache-2.0
// An integer program as referee of the searches for sub-clusters.
#include <doctest/doctest.h>

#include <cohort/packing/subclusters/subcluster_exact.hpp>
#include <cohort/packing/subclusters/subcluster_search.hpp>

#include <cmath>
#include <cstdint>

#include <packing/subcluster_cbc.hpp>
#include <packing/subclusters/random_subclusters.hpp>

namespace cohort::packing::subcluster_cbc_test {
namespace {

TEST_CASE("the solver, the complete search and the anytime search agree on small problems") {
  int infeasible = 0;
  int optimal = 0;
  int budgets = 0;
  int met = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    subcluster_problem p = test::random_subclusters(
        random, 3 + random.below(5U), 1 + random.below(3U), 0.95 + test::uniform(random));
    if (random.one_in(3)) {
      for (std::size_t i = 0; i < p.models.size(); ++i) p.current.push_back(random.below(p.count));
      p.max_move_cost = random.below(4U);
      ++budgets;
    }
    if (random.one_in(4)) p.memory_mb = std::numeric_limits<double>::infinity();
    const subcluster_proof proof = subcluster_exact{p, 10'000'000}.solve();
    REQUIRE(proof.complete);
    const cbc_answer a = solve_with_cbc(p, 60);
    subcluster_search search{p, seed};
    for (int i = 0; i < 100; ++i) search.run(2048, i / 100.0, i / 100.0);
    if (proof.best.empty()) {
      CHECK(a.what == cbc_answer::status::infeasible);
      CHECK_FALSE(search.found());
      ++infeasible;
      continue;
    }
    REQUIRE(a.what == cbc_answer::status::optimal);
    CHECK(verify(p, a.best).empty());
    const double near = 1e-5 * p.average_rate();
    CHECK(std::abs(a.objective - proof.objective) <= near);
    CHECK(a.bound <= proof.objective + near);
    CHECK(a.objective == doctest::Approx(evaluate(p, a.best).objective));
    if (search.found()) {
      CHECK(search.best_objective() >= a.objective - near);
      met += search.best_objective() <= 1.1 * a.objective + near;
    }
    ++optimal;
  }
  CHECK(infeasible >= 5);
  CHECK(optimal >= 15);
  CHECK(budgets >= 8);
  CHECK(met >= 0.9 * optimal);
}

TEST_CASE("on two dozen models the search is as good as the solver is in the same problem") {
  cohort::test::random_source random{3};
  const subcluster_problem p = test::random_subclusters(random, 24, 3, 1.2);
  subcluster_search search{p};
  for (int i = 0; i < 200; ++i) search.run(2048, i / 200.0, i / 200.0);
  REQUIRE(search.found());
  const cbc_answer a = solve_with_cbc(p, 0.5);
  CHECK(a.bound <= search.best_objective() * (1 + 1e-6) + 1e-9);
  if (!a.best.empty()) {
    CHECK(verify(p, a.best).empty());
    CHECK(a.objective >= a.bound - 1e-6 * p.average_rate());
  }
}

TEST_CASE("what a solver cannot be asked is refused") {
  cohort::test::random_source random{1};
  const subcluster_problem p = test::random_subclusters(random, 3, 2, 2);
  CHECK_THROWS_AS((void)solve_with_cbc(p, 0), config_error);
  CHECK_THROWS_AS((void)solve_with_cbc(subcluster_problem{}, 1), config_error);
}

}  // namespace
}  // namespace cohort::packing::subcluster_cbc_test
