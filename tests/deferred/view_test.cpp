// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/view.hpp>

#include <doctest/doctest.h>

namespace cohort::deferred::view_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("network delays add up before and after a batch") {
  constexpr network_delays d{
      .control = 10us, .data_per_request = 3us, .response = 20us, .wake_margin = 100us};
  CHECK(d.before(4) == 22us);
  CHECK(d.lead(4) == 122us);
  CHECK(d.after() == 120us);
  CHECK(network_delays{}.before(100) == 0us);
}
}  // namespace
}  // namespace cohort::deferred::view_test
