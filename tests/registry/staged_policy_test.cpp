// SPDX-License-Identifier: Apache-2.0
#include <registry/staged_policy.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::registry::staged_policy_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("every staged policy completes every request") {
  const staged_runner runner{formats::parse_staged_model("m.json", R"({
      "name": "m", "batch_max": 4, "slo_ms": 200,
      "stages": [{"name": "a", "latency": [{"batch": 1, "ms": 5}, {"batch": 4, "ms": 8}]},
                 {"name": "b", "latency": [{"batch": 1, "ms": 5}, {"batch": 4, "ms": 8}]}]})")};
  std::vector<sim::staged_arrival> arrivals;
  for (int i = 0; i < 9; ++i) arrivals.push_back({.at = time_point{} + i * 3ms});
  for (const listed_name& n : staged_policy_names().all()) {
    INFO(n.sample());
    const staged_policy p = parse_staged_policy(n.sample());
    CHECK(p.name == n.sample());
    CHECK(p.has_rows == (n.name != "cellular"));
    const sim::staged_result r = runner.run(p, arrivals);
    CHECK(r.completed == 9);
  }
}

TEST_CASE("what is no staged policy is refused with those that are") {
  CHECK(test::gist_of<formats::input_error>([&] { (void)parse_staged_policy("best"); }) ==
        "--policy: bad value");
  CHECK(test::gist_of<formats::input_error>([&] { (void)parse_staged_policy("early-exit:1.5"); }) ==
        "--policy early-exit: bad value");
}

}  // namespace
}  // namespace cohort::registry::staged_policy_test
