// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/rivals/clockwork.hpp>

#include <doctest/doctest.h>

#include "rival_cases.hpp"

namespace cohort::sim::clockwork_test {
namespace {
using namespace rival_cases;

auto ahead(duration by) {
  return [by](const rival_facts& f) { return clockwork{f, by}; };
}

TEST_CASE("what is committed at arrival is never changed: batches of one") {
  // The fourth would end at 24, one after its deadline.
  const workload w = trace_of(1, {usual_model()}, {{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  CHECK(played(w, ahead(1h)) == "0:m x1 0-6, 0:m x1 6-12, 0:m x1 12-18, 1 dropped, 0 late");
}

TEST_CASE("what waits for a free device is batched") {
  const workload w = trace_of(1, {usual_model()}, {{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  CHECK(played(w, ahead(0ms)) == "0:m x1 0-6, 0:m x3 6-14, 0 dropped, 0 late");
  // At 3, three ms before the device is free, all are there: within an instant arrivals come first.
  CHECK(played(w, ahead(3ms)) == "0:m x1 0-6, 0:m x3 6-14, 0 dropped, 0 late");
  CHECK(played(w, ahead(4ms)) == "0:m x1 0-6, 0:m x2 6-13, 0:m x1 13-19, 0 dropped, 0 late");
}

TEST_CASE("of several models the one whose last start is first is next") {
  model_spec hurried = usual_model();
  hurried.name = "h";
  hurried.slo = 16ms;
  // At 6 m's last start is 21 - 6 = 15, h's 18 - 6 = 12.
  const workload w = trace_of(1, {usual_model(), hurried}, {{0, 0}, {1, 0}, {2, 1}});
  CHECK(played(w, ahead(0ms)) == "0:m x1 0-6, 0:h x1 6-12, 0:m x1 12-18, 0 dropped, 0 late");
}

TEST_CASE("a request goes to the device that is free first, and is dropped if that is too late") {
  const workload w = trace_of(2, {usual_model()}, {{0, 0}, {1, 0}, {2, 0}});
  CHECK(played(w, ahead(1h)) == "0:m x1 0-6, 1:m x1 1-7, 0:m x1 6-12, 0 dropped, 0 late");
  model_spec brief = usual_model();
  brief.slo = 9ms;
  CHECK(played(trace_of(2, {brief}, {{0, 0}, {1, 0}, {2, 0}}), ahead(1h)) ==
        "0:m x1 0-6, 1:m x1 1-7, 1 dropped, 0 late");
}

}  // namespace
}  // namespace cohort::sim::clockwork_test
