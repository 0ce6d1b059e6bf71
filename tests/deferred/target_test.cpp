// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

#include <doctest/doctest.h>

#include <support/random_source.hpp>

namespace cohort::deferred::target_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("the staggered target fills during one turn") {
  // l(b) = b + 5, 1333.3 r/s: b / rate = 0.75 b. 5 + 1.75 b <= 12 gives 4.
  const latency_curve l{linear_latency{5ms, 1ms}, 8};
  CHECK(staggered_target{}.target({.rate = 4000.0 / 3}, 12ms, l) == 4);
  CHECK(staggered_target{}.target({.rate = 1e15}, 12ms + 1us, l) == 7);
}
TEST_CASE("the staggered target is 1 without a rate or without room") {
  const latency_curve l{linear_latency{5ms, 1ms}, 8};
  CHECK(staggered_target{}.target({.rate = 0}, 12ms, l) == 1);
  CHECK(staggered_target{}.target({.rate = 1}, 12ms, l) == 1);
  CHECK(staggered_target{}.target({.rate = 1e6}, 1ms, l) == 1);
}
TEST_CASE("the staggered target is the largest batch that meets its inequality") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const latency_curve l{linear_latency{1ms * random.below(10), 1us * (1 + random.below(4000))},
                          1 + random.below(60U)};
    const double rate = 1 + random.below(5000);
    const duration slo = 1ms * (1 + random.below(60));
    std::uint32_t largest = 1;
    for (std::uint32_t b = 1; b <= l.max_batch(); ++b) {
      if (to_seconds(l(b)) + b / rate <= to_seconds(slo)) largest = b;
    }
    REQUIRE(staggered_target{}.target({.rate = rate}, slo, l) == largest);
  }
}
}  // namespace
}  // namespace cohort::deferred::target_test
