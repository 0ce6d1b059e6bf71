// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/rivals/shepherd.hpp>

#include <doctest/doctest.h>

#include "rival_cases.hpp"

namespace cohort::sim::shepherd_test {
namespace {
using namespace rival_cases;

const auto make = [](const rival_facts& f) { return shepherd{f}; };

TEST_CASE("three requests stop one that runs, and it runs again after them") {
  const workload w = trace_of(1, {usual_model()}, {{0, 0}, {1, 0}, {1, 0}, {1, 0}});
  // The one that was stopped ends there.
  CHECK(played(w, make) == "0:m x1 0-1, 0:m x3 1-9, 0:m x1 9-15, 0 dropped, 0 late");
}

TEST_CASE("two do not stop it") {
  const workload w = trace_of(1, {usual_model()}, {{0, 0}, {1, 0}, {1, 0}});
  CHECK(played(w, make) == "0:m x1 0-6, 0:m x2 6-13, 0 dropped, 0 late");
}

TEST_CASE("one that was stopped is dropped once it could not be in time") {
  model_spec brief = usual_model();
  brief.slo = 12ms;
  // Stopped at 1; the others run until 9, and 15 is after its deadline.
  const workload w = trace_of(1, {brief}, {{0, 0}, {1, 0}, {1, 0}, {1, 0}});
  CHECK(played(w, make) == "0:m x1 0-1, 0:m x3 1-9, 1 dropped, 0 late");
}

TEST_CASE("a free device gets the largest batch, of equals the one with the first deadline") {
  model_spec other = usual_model();
  other.name = "o";
  other.slo = 30ms;
  // At 6 wait one of m and two of o.
  CHECK(played(trace_of(1, {usual_model(), other}, {{0, 0}, {1, 0}, {2, 1}, {3, 1}}), make) ==
        "0:m x1 0-6, 0:o x2 6-13, 0:m x1 13-19, 0 dropped, 0 late");
  CHECK(played(trace_of(1, {other, usual_model()}, {{0, 0}, {1, 0}, {2, 1}}), make) ==
        "0:o x1 0-6, 0:m x1 6-12, 0:o x1 12-18, 0 dropped, 0 late");
}

TEST_CASE("of those that run the smallest is stopped") {
  const workload w = trace_of(2, {usual_model()}, {{0, 0}, {0, 0}, {1, 0}, {2, 0}, {2, 0}, {2, 0}});
  CHECK(played(w, make) == "0:m x2 0-7, 1:m x1 1-2, 1:m x3 2-10, 0:m x1 7-13, 0 dropped, 0 late");
}

}  // namespace
}  // namespace cohort::sim::shepherd_test
