// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/version.hpp>

#include <doctest/doctest.h>

#include <string>
#include <string_view>

namespace cohort::version_test {
namespace {

TEST_CASE("the headers tell the version that the build system tells") {
  const std::string dotted = std::to_string(COHORT_VERSION_MAJOR) + "." +
                             std::to_string(COHORT_VERSION_MINOR) + "." +
                             std::to_string(COHORT_VERSION_PATCH);
  CHECK(dotted == PROJECT_VERSION);
  CHECK(std::string_view{version_string} == PROJECT_VERSION);
}

TEST_CASE("the single number orders versions") {
  CHECK(COHORT_VERSION ==
        COHORT_VERSION_MAJOR * 10000 + COHORT_VERSION_MINOR * 100 + COHORT_VERSION_PATCH);
#if COHORT_VERSION < 100
  FAIL("the preprocessor cannot compare COHORT_VERSION");
#endif
}

}  // namespace
}  // namespace cohort::version_test
