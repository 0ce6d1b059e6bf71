// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/copy_plan.hpp>

#include <doctest/doctest.h>

namespace cohort::kv::copy_plan_test {
namespace {

TEST_CASE("a plan keeps its copies in order and is empty again once cleared") {
  copy_plan plan{2};
  CHECK(plan.empty());
  const column_copy first{.kind = copy_kind::enter, .to_slot = 1, .to_column = 3, .count = 2};
  const column_copy second{.kind = copy_kind::shift, .from_column = 9, .count = 1};
  plan.add(first);
  plan.add(second);
  REQUIRE(plan.copies().size() == 2);
  CHECK(plan.copies()[0] == first);
  CHECK(plan.copies()[1] == second);
  plan.clear();
  CHECK(plan.empty());
}

TEST_CASE("a plan without copies is not empty if it asks for other memory") {
  copy_plan plan;
  plan.set_capacity(128);
  CHECK_FALSE(plan.empty());
  CHECK(plan.capacity() == 128);
  plan.clear();
  CHECK(plan.capacity() == 0);
  plan.set_rows(3);
  CHECK_FALSE(plan.empty());
  CHECK(plan.rows() == 3);
  plan.clear();
  CHECK(plan.rows() == 0);
}

}  // namespace
}  // namespace cohort::kv::copy_plan_test
