// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/request_life.hpp>

#include <doctest/doctest.h>

namespace cohort::engine::drain_report_test {
namespace {

TEST_CASE("a drain is clean that has left neither requests nor devices that hang") {
  CHECK(drain_report{}.is_clean());
  CHECK_FALSE(drain_report{.requests = 1}.is_clean());
  CHECK_FALSE(drain_report{.hanging_devices = 1}.is_clean());
}

}  // namespace
}  // namespace cohort::engine::drain_report_test
