// SPDX-License-Identifier: Apache-2.0
// A round of trials that runs out of memory has no results, and the next is as if it had not been.
#include <cohort/deferred/twin/trial_runner.hpp>

#include <doctest/doctest.h>

#include <support/trial_runner_suite.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
bool is_counting = false;
std::size_t left = 0;  // Allocations that succeed.
}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (is_counting && left-- == 0) {
    is_counting = false;
    throw std::bad_alloc{};
  }
  void* p = std::malloc(size > 0 ? size : 1);
  if (p == nullptr) throw std::bad_alloc{};
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace cohort::deferred::trial_memory_test {
namespace {

TEST_CASE("whichever allocation fails, the round ends without results and the next is whole") {
  tuning_job expected = trial_job(300);
  expected.run();
  REQUIRE(expected.results.size() == 2);
  std::size_t failed = 0;
  for (std::size_t n = 0;; ++n) {
    CAPTURE(n);
    tuning_job j = trial_job(300);
    left = n;
    is_counting = true;
    j.run();
    const bool finished = is_counting;
    is_counting = false;
    CHECK(j.results.size() == (finished ? 2 : 0));
    j.run();
    REQUIRE(j.results.size() == 2);
    CHECK(j.results[1].latency == expected.results[1].latency);
    if (finished) break;
    ++failed;
  }
  CHECK(failed > 50);
}

}  // namespace
}  // namespace cohort::deferred::trial_memory_test
