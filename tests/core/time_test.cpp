// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/time.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace cohort::time_test {
namespace {
using namespace std::chrono_literals;

static_assert(sizeof(time_point) == 8 && sizeof(duration) == 8);
static_assert(std::same_as<duration::period, std::nano>);
static_assert(!std::convertible_to<std::int64_t, duration>);
static_assert(!std::convertible_to<std::chrono::steady_clock::time_point, time_point>);

template <class T>
concept tells_the_time = requires { T::now(); };
static_assert(!tells_the_time<timeline>);  // Components are told the time.

TEST_CASE("milliseconds and seconds become nanoseconds") {
  CHECK(from_ms(1.5) == duration{1'500'000});
  CHECK(from_seconds(2) == duration{2'000'000'000});
  CHECK(from_ms(0) == 0ns);
  CHECK(from_ms(-2.25) == duration{-2'250'000});
  CHECK(to_ms(duration{2'500'000}) == 2.5);
  CHECK(to_seconds(duration{-500'000'000}) == -0.5);
  CHECK(to_ms(time_point{3ms}) == 3.0);
  CHECK(to_seconds(time_point{90s}) == 90.0);
}

TEST_CASE("fractions of a nanosecond are rounded to the nearest, half away from zero") {
  CHECK(from_ms(0.0000014) == 1ns);
  CHECK(from_ms(0.0000016) == 2ns);
  CHECK(from_ms(-0.0000016) == -2ns);
}

TEST_CASE("what does not fit saturates at unbounded, in both directions") {
  CHECK(from_ms(1e300) == unbounded);
  CHECK(from_ms(-1e300) == -unbounded);
  CHECK(from_seconds(std::numeric_limits<double>::infinity()) == unbounded);
  CHECK(from_seconds(-std::numeric_limits<double>::infinity()) == -unbounded);
}

TEST_CASE("the bounds leave room for the sums that schedulers form") {
  constexpr time_point late_but_real{std::chrono::hours{24 * 365 * 50}};
  CHECK(late_but_real + unbounded > late_but_real);
  CHECK(late_but_real + unbounded < never);
  CHECK(late_but_real - distant_past > 0ns);
  CHECK(distant_past - unbounded < distant_past);
  CHECK(distant_past < time_point{});
}

TEST_CASE("milliseconds survive the way there and back over 52 days") {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    for (int i = 0; i < 1000; ++i) {
      const duration d{random.below(1LL << 53) - (1LL << 52)};
      CAPTURE(d.count());
      // A double holds 53 bits; dividing and multiplying by 1e6 may each lose half of the last.
      REQUIRE(std::abs((from_ms(to_ms(d)) - d).count()) <= 1);
    }
  }
}

}  // namespace
}  // namespace cohort::time_test
