// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/request.hpp>

#include <doctest/doctest.h>

namespace cohort::outcome_test {
namespace {

TEST_CASE("every outcome has the name that reports and metrics print") {
  CHECK(to_string(outcome::completed) == "completed");
  CHECK(to_string(outcome::late) == "late");
  CHECK(to_string(outcome::dropped) == "dropped");
  CHECK(to_string(outcome::cancelled) == "cancelled");
  CHECK(to_string(outcome::failed) == "failed");
}

TEST_CASE("every refusal has the name that reports and metrics print") {
  CHECK(to_string(refusal::unknown_model) == "unknown_model");
  CHECK(to_string(refusal::queue_full) == "queue_full");
  CHECK(to_string(refusal::too_big) == "too_big");
  CHECK(to_string(refusal::deadline_infeasible) == "deadline_infeasible");
  CHECK(to_string(refusal::draining) == "draining");
}

TEST_CASE("a request that is refused after it was taken ends by the reason") {
  CHECK(outcome_of(refusal::overloaded) == outcome::refused);
  CHECK(outcome_of(refusal::no_device) == outcome::failed);
  CHECK(outcome_of(refusal::unknown_model) == outcome::dropped);
  CHECK(outcome_of(refusal::deadline_infeasible) == outcome::dropped);
}

TEST_CASE("a value that is no outcome is shown as unknown rather than read out of bounds") {
  CHECK(to_string(static_cast<outcome>(200)) == "?");
  CHECK(to_string(static_cast<refusal>(200)) == "?");
}

}  // namespace
}  // namespace cohort::outcome_test
