// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/assert.hpp>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace {

// Runs the assertion in a child process, whose way of ending is the result.
int status_of_child(bool condition) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would report a failed case.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(3);
    COHORT_ASSERT(condition);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("an assertion that holds lets the program go on") {
  const int status = status_of_child(true);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an assertion that does not hold aborts the program, unless NDEBUG is defined") {
  const int status = status_of_child(false);
#ifdef NDEBUG
  CHECK(WIFEXITED(status));
#else
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
#endif
}

TEST_CASE("an assertion can be used in a constant expression") {
  constexpr auto half = [](int even) {
    COHORT_ASSERT(even % 2 == 0);
    return even / 2;
  };
  static_assert(half(4) == 2);
  CHECK(half(6) == 3);
}

}  // namespace
