// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

#include <doctest/doctest.h>

namespace cohort::deferred::priority_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("earliest_latest is as urgent as the last possible start") {
  const batch_view b{.size = 4,
                     .deadline = time_point{12ms},
                     .arrival = {},
                     .slo = 12ms,
                     .latency = 9ms,
                     .latency_next = 10ms,
                     .load = {}};
  CHECK(earliest_latest{}.urgency(b) == time_point{3ms});
}
}  // namespace
}  // namespace cohort::deferred::priority_test
