// SPDX-License-Identifier: Apache-2.0
//
#include <cohort/core/clock.hpp>

#include <doctest/doctest.h>

namespace cohort::clock_test {
namespace {
using namespace std::chrono_literals;

struct throwing_clock {
  time_point now() const { return {}; }
};
static_assert(!clock<throwing_clock>);
struct wrong_type_clock {
  int now() const noexcept { return 0; }
};
static_assert(!clock<wrong_type_clock>);
struct mutable_clock {
  time_point now() noexcept { return {}; }
};
static_assert(!clock<mutable_clock>);

TEST_CASE("a manual clock starts at zero, or where it is told to") {
  CHECK(manual_clock{}.now() == time_point{});
  CHECK(manual_clock{time_point{7s}}.now() == time_point{7s});
}

TEST_CASE("a manual clock moves by exactly what it is told, and zero is allowed") {
  manual_clock clock{time_point{10ms}};
  clock.advance(5ms);
  CHECK(clock.now() == time_point{15ms});
  clock.advance(0ns);
  CHECK(clock.now() == time_point{15ms});
  clock.advance_to(time_point{15ms});
  CHECK(clock.now() == time_point{15ms});
  clock.advance_to(time_point{1s});
  CHECK(clock.now() == time_point{1s});
}

TEST_CASE("a manual clock works in constant expressions") {
  constexpr time_point reached = [] {
    manual_clock clock;
    clock.advance(3ns);
    clock.advance(4ns);
    return clock.now();
  }();
  static_assert(reached == time_point{7ns});
  CHECK(reached == time_point{7ns});
}

TEST_CASE("the steady clock never goes back and counts the nanoseconds of std::chrono") {
  const steady_clock clock;
  const auto before = std::chrono::steady_clock::now().time_since_epoch();
  time_point last = clock.now();
  CHECK(last.time_since_epoch() >= before);
  for (int i = 0; i < 10000; ++i) {
    const time_point now = clock.now();
    REQUIRE(now >= last);
    last = now;
  }
  CHECK(last.time_since_epoch() <= std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace
}  // namespace cohort::clock_test
