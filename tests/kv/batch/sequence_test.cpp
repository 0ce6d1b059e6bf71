// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/sequence.hpp>

#include <doctest/doctest.h>

namespace cohort::kv::sequence_test {
namespace {

TEST_CASE("a new sequence is its caller's, promises nothing and never expires") {
  const sequence s;
  CHECK(s.state == sequence_state::idle);
  CHECK(s.first_token_by == never);
  CHECK(s.deadline == never);
  CHECK_FALSE(s.cancel_requested);
}

}  // namespace
}  // namespace cohort::kv::sequence_test
