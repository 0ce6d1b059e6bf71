// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/error.hpp>

#include <doctest/doctest.h>

#include <exception>
#include <source_location>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace cohort::error_test {
namespace {

static_assert(std::is_base_of_v<std::runtime_error, error>);
static_assert(std::is_nothrow_copy_constructible_v<config_error>);
static_assert(!std::is_constructible_v<error, const char*, std::source_location>);  // Only a kind.

TEST_CASE("expects does nothing when the condition holds, also at compile time") {
  static_assert([] {
    expects(true, "never seen");
    return true;
  }());
  CHECK_NOTHROW(expects(true, "never seen"));
}

TEST_CASE("expects throws a config_error with the message when the condition does not hold") {
  CHECK_THROWS_WITH_AS(expects(false, "window: slack must be at least 0"),
                       "window: slack must be at least 0", config_error);
}

TEST_CASE("a config_error knows the line of the check that failed") {
  unsigned line = 0;
  try {
    line = __LINE__ + 1;
    expects(false, "field: range");
    FAIL("expects(false) returned");
  } catch (const config_error& e) {
    CHECK(e.where().line() == line);
    CHECK(std::string_view{e.where().file_name()}.ends_with("error_test.cpp"));
  }
}

TEST_CASE("a config_error constructed by hand knows where that happened") {
  const unsigned line = __LINE__ + 1;
  const config_error e{"queue: capacity must be in 1 to 1000"};
  CHECK(e.where().line() == line);
  CHECK(std::string_view{e.what()} == "queue: capacity must be in 1 to 1000");
}

template <class Error>
void check_kind() {
  const unsigned line = __LINE__ + 1;
  const auto fail = [] { throw Error{"what is wrong"}; };
  CHECK_THROWS_WITH_AS(fail(), "what is wrong", Error);
  try {
    fail();
  } catch (const error& e) {
    CHECK(e.where().line() == line);
  }
  CHECK_THROWS_AS(fail(), std::exception);
}
TEST_CASE("each kind of error can be caught as error, which knows the line") {
  check_kind<config_error>();
  check_kind<resource_error>();
  check_kind<device_error>();
}
TEST_CASE("no kind of error is caught as another") {
  static_assert(!std::is_base_of_v<config_error, resource_error>);
  static_assert(!std::is_base_of_v<config_error, device_error>);
  static_assert(!std::is_base_of_v<resource_error, device_error>);
  CHECK_THROWS_AS(expects(false, "field: range"), config_error);
}

}  // namespace
}  // namespace cohort::error_test
