// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/candidate.hpp>

#include <doctest/doctest.h>

namespace cohort::deferred::candidate_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a candidate is sent its lead before its start") {
  const candidate c{.size = 2,
                    .exec_at = time_point{10ms},
                    .latest = time_point{11ms},
                    .lead = 1ms,
                    .urgency = time_point{11ms}};
  CHECK(c.send_at() == time_point{9ms});
  CHECK(c.send_by() == time_point{10ms});
  CHECK_FALSE(c.is_empty());
  CHECK(candidate{}.is_empty());
}
TEST_CASE("a margin for waking up late is not needed any more once awake") {
  const candidate c{.size = 1,
                    .exec_at = time_point{10ms},
                    .latest = time_point{11ms},
                    .lead = 3ms,
                    .margin = 2ms,
                    .urgency = {}};
  CHECK(c.send_at() == time_point{7ms});
  CHECK(c.send_by() == time_point{10ms});
}
}  // namespace
}  // namespace cohort::deferred::candidate_test
