// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/leadership.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::cluster::leadership_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("a picker leads from the grant of a term to its end") {
  leadership l;
  CHECK_FALSE(l.leads(t0));
  CHECK(l.until() == never);
  CHECK(l.on_grant(1, t0 + 2s, t0));
  CHECK(l.leads(t0));
  CHECK(l.leads(t0 + 2s - 1ns));
  CHECK_FALSE(l.leads(t0 + 2s));
}
TEST_CASE("grants of one term prolong it, and a late one does not shorten it") {
  leadership l;
  l.on_grant(1, t0 + 2s, t0);
  CHECK_FALSE(l.on_grant(1, t0 + 5s, t0 + 1s));
  CHECK_FALSE(l.on_grant(1, t0 + 4s, t0 + 1s));
  CHECK(l.until() == t0 + 5s);
}
TEST_CASE("an older term, or one that has ended on arrival, is nothing") {
  leadership l;
  CHECK_FALSE(l.on_grant(1, t0, t0));
  CHECK(l.on_grant(3, t0 + 1s, t0));
  CHECK_FALSE(l.on_grant(2, t0 + 9s, t0));
  CHECK(l.until() == t0 + 1s);
  CHECK(l.on_grant(4, t0 + 2s, t0 + 1s));
  CHECK(l.epoch() == 4);
}
TEST_CASE("another picker's term ends this one's for good") {
  leadership l;
  l.on_grant(2, t0 + 9s, t0);
  l.on_other(1);
  CHECK(l.leads(t0));
  l.on_other(3);
  CHECK_FALSE(l.leads(t0));
  CHECK_FALSE(l.on_grant(2, t0 + 9s, t0));
  CHECK_FALSE(l.on_grant(3, t0 + 9s, t0));  // The other's, or one that the store has ended.
  CHECK(l.on_grant(4, t0 + 9s, t0));
}

}  // namespace
}  // namespace cohort::cluster::leadership_test
