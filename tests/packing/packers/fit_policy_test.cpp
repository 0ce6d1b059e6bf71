// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/packers/fit_policy.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/elastic_partition.hpp>

#include <packing/random_demand.hpp>

namespace cohort::packing::fit_policy_test {
namespace {

TEST_CASE("the key of a free gpu-let: its size, less its size, or nothing") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  CHECK(tightest{}(g, 0, 0) == 50);
  CHECK(tightest{}(g, 0, 1) == 100);
  CHECK(roomiest{}(g, 0, 0) == -50);
  CHECK(roomiest{}(g, 0, 1) == -100);
  CHECK(first_free{}(g, 0, 0) == first_free{}(g, 0, 1));
}
TEST_CASE("of three free gpu-lets each policy takes its own") {
  const latency_grid g{{test::unit_model("a", 100)}, test::halves()};
  const packing_problem p{.gpus = 2, .rates_rps = {1}};
  detail::workspace w{g, p};
  w.assign(w.cut(0, 0), 0, 1);  // Half of device 0 is used; free are device 1 and, later, a half.
  CHECK(w.best_fit(0, 0) == 2);
  CHECK(w.best_fit(0, 0, tightest{}) == 2);
  CHECK(w.best_fit(0, 0, roomiest{}) == 1);
  CHECK(w.best_fit(0, 0, first_free{}) == 1);
  CHECK(w.best_fit(1, 0, tightest{}) == 1);  // The half is too small.
}
template <class Fit>
int schedulable() {
  int n = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g{test::random_profiles(random, 5), {}};
    const packing_problem p = test::random_problem(random, g, 3, 2.5);
    const packing_result r = basic_elastic<rate_descending, largest_curvature, Fit>{}(g, p);
    if (!r.schedulable()) continue;
    ++n;
    const std::vector<std::string> broken = verify(g, p, r.plan);
    REQUIRE_MESSAGE(broken.empty(), broken.front());
  }
  return n;
}
TEST_CASE("plans made with any of them pass the verifier") {
  CHECK(schedulable<tightest>() > 20);
  CHECK(schedulable<roomiest>() > 20);
  CHECK(schedulable<first_free>() > 20);
}

}  // namespace
}  // namespace cohort::packing::fit_policy_test
