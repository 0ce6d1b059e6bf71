// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/batch/prepared.hpp>

#include <doctest/doctest.h>

namespace cohort::kv::prepared_test {
namespace {

TEST_CASE("after prefill a sequence has as many columns as its prompt and one token pending") {
  prepared p{.id = request_id{7}, .prompt = 5, .length = 5, .produced = 1, .pending = 42};
  CHECK(obeys_counting_law(p));
  p.length = 6;  // A column whose token was never produced.
  CHECK_FALSE(obeys_counting_law(p));
  p.produced = 2;
  CHECK(obeys_counting_law(p));
}

TEST_CASE("nothing obeys the counting law before its first token") {
  CHECK_FALSE(obeys_counting_law(prepared{.prompt = 1, .length = 0, .produced = 0}));
  CHECK_FALSE(obeys_counting_law(prepared{.prompt = 0, .length = 0, .produced = 1}));
}

TEST_CASE("every reason has a name of its own") {
  CHECK(to_string(finish_reason::stop) == "stop");
  CHECK(to_string(finish_reason::length) == "length");
  CHECK(to_string(finish_reason::context_length) == "context_length");
  CHECK(to_string(finish_reason::cancelled) == "cancelled");
  CHECK(to_string(finish_reason::deadline) == "deadline");
  CHECK(to_string(finish_reason::rejected) == "rejected");
  CHECK(to_string(finish_reason::error) == "error");
}

}  // namespace
}  // namespace cohort::kv::prepared_test
