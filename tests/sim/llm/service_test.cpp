// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/service.hpp>

#include <doctest/doctest.h>

namespace cohort::sim::service_test {
namespace {

TEST_CASE("the share of good requests is that of all, those given up included") {
  service_result r;
  CHECK(r.good_share() == 1);  // Nobody was let down.
  r.outcomes.resize(8);
  r.good = 6;
  CHECK(r.good_share() == 0.75);
}

}  // namespace
}  // namespace cohort::sim::service_test
