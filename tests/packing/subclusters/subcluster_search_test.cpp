// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/subclusters/subcluster_search.hpp>

#include <doctest/doctest.h>
#include <cohort/packing/subclusters/subcluster_exact.hpp>

#include <packing/subclusters/random_subclusters.hpp>

namespace cohort::packing::subcluster_search_test {
namespace {

/// Runs a search for a number of steps instead of a time.
void improve_for(subcluster_search& search, double steps) {
  double done = 0;
  improve(search, [&] {
    const double part = done / steps;
    done += 2048;
    return part;
  });
}

TEST_CASE("on small problems the search finds what the complete search proves best") {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const subcluster_problem p =
        test::random_subclusters(random, 6 + random.below(3U), 2 + random.below(2U), 1.4);
    const subcluster_proof proof = subcluster_exact{p, 10'000'000}.solve();
    REQUIRE(proof.complete);
    subcluster_search search{p, seed};
    improve_for(search, 3e5);
    // It never finds what is not there.
    if (search.found()) {
      REQUIRE_FALSE(proof.best.empty());
      CHECK(verify(p, search.best()).empty());
      CHECK(search.best_objective() >= proof.objective * (1 - 1e-9));
      found += search.best_objective() <= proof.objective * 1.1;
    } else {
      CHECK(proof.best.empty());
      ++found;
    }
  }
  CHECK(found >= 54);  // The energy it anneals is not the objective.
}
TEST_CASE("800 models on 20: all caps kept, and far evener than greedy") {
  cohort::test::random_source random{5};
  const subcluster_problem p = test::random_subclusters(random, 800, 20, 1.05);
  subcluster_search search{p};
  REQUIRE(search.found());
  const double greedy = search.best_objective();
  CHECK(evaluate(p, search.best()).objective == doctest::Approx(greedy));
  CHECK(greedy < 0.02 * p.average_rate());
  improve_for(search, 3e6);
  CHECK(verify(p, search.best()).empty());
  CHECK(search.best_objective() < 0.002 * p.average_rate());
  CHECK(evaluate(p, search.best()).objective ==
        doctest::Approx(search.best_objective()).epsilon(1e-6));
}
TEST_CASE("a start that breaks the caps is repaired") {
  cohort::test::random_source random{6};
  subcluster_problem p = test::random_subclusters(random, 60, 4, 1.1);
  p.current.assign(60, 2);
  subcluster_search search{p};
  CHECK_FALSE(search.found());
  improve_for(search, 1e6);
  REQUIRE(search.found());
  CHECK(verify(p, search.best()).empty());
}
TEST_CASE("a budget of moves is kept, and is enough after a tenth of the rates changed") {
  cohort::test::random_source random{7};
  subcluster_problem p = test::random_subclusters(random, 800, 20, 1.2);
  subcluster_search first{p};
  improve_for(first, 2e6);
  p.current = first.best();
  for (int i = 0; i < 80; ++i) {
    p.models[random.below(std::size_t{800})].rate_rps = -100 * std::log(1 - test::uniform(random));
  }
  p.max_move_cost = 40;
  subcluster_search again{p, 2};
  improve_for(again, 3e6);
  REQUIRE(again.found());
  CHECK(verify(p, again.best()).empty());
  const subcluster_value v = evaluate(p, again.best());
  CHECK(v.move_cost <= 40);
  CHECK(v.rate_imbalance <= 0.03);
}
TEST_CASE("the same seed finds the same assignment") {
  cohort::test::random_source random{8};
  const subcluster_problem p = test::random_subclusters(random, 100, 5, 1.2);
  const auto run = [&p](std::uint64_t seed) {
    subcluster_search s{p, seed};
    improve_for(s, 1e5);
    return s.best();
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}
TEST_CASE("without rates, without memory, or with one sub-cluster there is still an answer") {
  for (const std::uint32_t count : {1U, 3U}) {
    subcluster_problem p{.models = {{}, {}, {}, {.static_mb = 5}}, .count = count};
    subcluster_search s{p};
    improve_for(s, 1e4);
    REQUIRE(s.found());
    CHECK(verify(p, s.best()).empty());
    p.models = {{.rate_rps = 2}, {.rate_rps = 1}, {.rate_rps = 1}};
    p.count = std::min(count, 2U);
    subcluster_search t{p};
    improve_for(t, 1e4);
    CHECK(t.best_objective() == doctest::Approx(0));
  }
}
}  // namespace
}  // namespace cohort::packing::subcluster_search_test
