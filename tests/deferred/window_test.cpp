// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::deferred::window_test {
namespace {
using namespace std::chrono_literals;

constexpr time_point t0{};
// l(b) = b + 5, four requests, the first of which arrived at 0 with deadline 12.
constexpr batch_view paper{.size = 4,
                           .deadline = t0 + 12ms,
                           .arrival = t0,
                           .slo = 12ms,
                           .latency = 9ms,
                           .latency_next = 10ms,
                           .load = {}};

TEST_CASE("frontrun opens when one more request could no longer join") {
  CHECK(frontrun{}.opens(paper) == t0 + 2ms);  // 12 - l(5).
}
TEST_CASE("frontrun opens at once for a batch that cannot grow") {
  batch_view full = paper;
  full.latency_next = unbounded;
  CHECK(frontrun{}.opens(full) < t0 - 24h);
}
TEST_CASE("eager opens before any instant") { CHECK(eager{}.opens(paper) == distant_past); }
TEST_CASE("timeout opens a part of the SLO after the first arrival") {
  CHECK(timeout{0.25}.opens(paper) == t0 + 3ms);
  CHECK(timeout{0}.opens(paper) == t0);
}
TEST_CASE("timeout rejects parts outside of 0 to 1") {
  CHECK(test::gist_of<config_error>([&] { (void)timeout{-0.1}; }) ==
        "timeout: fraction ... 0 to 1");
  CHECK_THROWS_AS(timeout{1.1}, config_error);
}
}  // namespace
}  // namespace cohort::deferred::window_test
