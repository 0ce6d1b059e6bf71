// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/methods.hpp>

#include <doctest/doctest.h>

namespace cohort::sim::methods_test {
namespace {

TEST_CASE("every method has the name that the command takes") {
  CHECK(to_string(decode_method::run_to_completion) == "run-to-completion");
  CHECK(to_string(decode_method::pd) == "pd");
  CHECK(to_string(decode_method::shaping) == "shaping");
  CHECK(to_string(decode_method::orca) == "orca");
  CHECK(to_string(decode_method::baton) == "baton");
}

}  // namespace
}  // namespace cohort::sim::methods_test
