// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/model/plan.hpp>

#include <doctest/doctest.h>

namespace cohort::packing::plan_test {
namespace {

TEST_CASE("the sizes of a plan add up, and only a feasible result is schedulable") {
  plan p;
  CHECK(used_pct(p) == 0);
  p.push_back({.gpu = device_id{0}, .size = device_share{40}});
  p.push_back({.gpu = device_id{1}, .size = device_share{100}});
  CHECK(used_pct(p) == 140);
  CHECK(packing_result{.status = packing_status::feasible}.schedulable());
  CHECK_FALSE(packing_result{.status = packing_status::unknown}.schedulable());
  CHECK_FALSE(packing_result{.status = packing_status::infeasible}.schedulable());
}
}  // namespace
}  // namespace cohort::packing::plan_test
