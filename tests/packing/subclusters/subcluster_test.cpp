// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/subclusters/subcluster.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::packing::subcluster_test {
namespace {
using cohort::test::gist;
using list = std::vector<std::string>;

subcluster_problem three() {
  return {.models = {{.rate_rps = 10, .static_mb = 4, .dynamic_mb = 3},
                     {.rate_rps = 20, .static_mb = 2, .dynamic_mb = 1},
                     {.rate_rps = 30, .static_mb = 6, .dynamic_mb = 2}},
          .count = 2};
}

TEST_CASE("the objective is the largest deviation of rates plus that of memory, weighed") {
  subcluster_problem p = three();
  p.weight = 2;
  // Averages 30 and 6. {0, 1 | 2}: rates 30, 30; memory 6, 6.
  CHECK(evaluate(p, subcluster_assignment{0, 0, 1}).objective == 0);
  // {0 | 1, 2}: rates 10, 50; memory 4, 8: 20 + 2 * 2.
  const subcluster_value v = evaluate(p, subcluster_assignment{0, 1, 1});
  CHECK(v.objective == doctest::Approx(24));
  CHECK(v.rate_imbalance == doctest::Approx(40 / 30.0));
  CHECK(v.memory_imbalance == doctest::Approx(4 / 6.0));
  p.weight = -1;  // 30 / 6.
  CHECK(evaluate(p, subcluster_assignment{0, 1, 1}).objective == doctest::Approx(30));
}
TEST_CASE("every cap that an assignment breaks is named") {
  subcluster_problem p = three();
  p.rate_cap_rps = 30;
  p.memory_mb = 9;
  CHECK(verify(p, subcluster_assignment{0, 0, 1}) == list{});  // 6 + 3 and 6 + 2.
  CHECK(gist(verify(p, subcluster_assignment{1, 0, 1})) ==
        "sub-cluster 1: 40 requests a second ... 30\nsub-cluster 1: ... 13 MB ... 9");
  p.current = {1, 0, 1};
  p.max_move_cost = 0.5;
  CHECK(gist(verify(p, subcluster_assignment{0, 0, 1})) == "... moves cost 1 ... 0.5");
  CHECK(verify(p, subcluster_assignment{0, 0}).size() == 1);
  CHECK(verify(p, subcluster_assignment{0, 0, 2}).size() == 1);
}
TEST_CASE("what cannot fit at all is told without a search") {
  subcluster_problem p = three();
  CHECK(why_impossible(p).empty());
  p.rate_cap_rps = 29;
  CHECK(gist(why_impossible(p)) == "model 2: 30 requests a second ... 29");
  p = three();
  p.memory_mb = 7.5;
  CHECK(gist(why_impossible(p)) == "model 2: ... 8 MB ... 7.5");
  p.models[2].static_mb = 5;
  p.memory_mb = 5;
  p.models = {p.models.begin(), p.models.begin() + 2};
  p.models.assign(3, {.rate_rps = 1, .static_mb = 4});
  CHECK(gist(why_impossible(p)) == "all models: ... 12 MB ... 10");
  p.memory_mb = 100;
  p.rate_cap_rps = 1;
  CHECK(gist(why_impossible(p)) == "all models: 3 requests a second ... 2");
}
TEST_CASE("problems out of range are errors") {
  const auto refused = [](auto change) {
    subcluster_problem p = three();
    change(p);
    CHECK_THROWS_AS(check_problem(p), config_error);
  };
  refused([](auto& p) { p.count = 0; });
  refused([](auto& p) { p.memory_mb = 0; });
  refused([](auto& p) { p.rate_cap_rps = 0; });
  refused([](auto& p) { p.models.clear(); });
  refused([](auto& p) { p.models[0].rate_rps = -1; });
  refused([](auto& p) { p.models[0].move_cost = 1e308 * 10; });
  refused([](auto& p) { p.current = {0, 1}; });
  refused([](auto& p) { p.current = {0, 1, 2}; });
  refused([](auto& p) { p.max_move_cost = 3; });
  refused([](auto& p) { p.weight = std::nan(""); });
}
}  // namespace
}  // namespace cohort::packing::subcluster_test
