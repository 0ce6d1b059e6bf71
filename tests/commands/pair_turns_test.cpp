// SPDX-License-Identifier: Apache-2.0
#include <commands/pair_turns.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace cohort::commands::pair_turns_test {
namespace {

/// Sides that take 10 and 40 ms alone and, together, 1.5 and 1.2 times as long; times what the
/// machine is slowed by in its block number so and so.
struct synthetic_machine {
  std::function<double(int)> slow = [](int) { return 1.0; };
  int block = 0;
  std::string log{};

  double alone(std::size_t side) {
    log += side == 0 ? 'a' : 'b';
    const double ms = (side == 0 ? 10 : 40) * slow(block);
    if (side == 1) ++block;  // Both sides' solo runs are one block.
    return ms;
  }
  std::array<double, 2> together() {
    log += '+';
    const double s = slow(block++);
    return {15 * s, 48 * s};
  }
};
static_assert(pair_machine<synthetic_machine>);

TEST_CASE("the middle is the mean of two where their number is even") {
  CHECK(middle_of({7}) == 7);
  CHECK(middle_of({9, 1, 4}) == 4);
  CHECK(middle_of({9, 1, 4, 6}) == 5);
}
TEST_CASE("each turn is judged by the solo runs around it") {
  struct scripted {
    std::array<std::vector<double>, 2> solos{{{14, 12, 10}, {5, 5, 5}}};  // The last comes first.
    std::vector<std::array<double, 2>> both{{26, 10}, {16.5, 5}};
    double alone(std::size_t side) {
      const double ms = solos.at(side).back();
      solos.at(side).pop_back();
      return ms;
    }
    std::array<double, 2> together() {
      const auto ms = both.back();
      both.pop_back();
      return ms;
    }
  } machine;
  const auto t = measure_turns(machine, 2);
  // Alone 10, 12, 14; beside 16.5, 26: 16.5 / 11 = 1.5 and 26 / 13 = 2.
  CHECK(t[0].alone_ms == 12);
  CHECK(t[0].beside_ms == 21.25);
  CHECK(t[0].factor == doctest::Approx(1.75));
  CHECK(t[0].noise == doctest::Approx((0.2 + 1.0 / 6) / 2));
  CHECK(t[1].factor == doctest::Approx(1.5));  // 1 and 2.
  CHECK(t[1].noise == 0);
}
TEST_CASE("solo runs come before, between and after the turns") {
  synthetic_machine m;
  const auto t = measure_turns(m, 3);
  CHECK(m.log == "ab+ab+ab+ab");
  CHECK(t[0].factor == doctest::Approx(1.5));
  CHECK(t[1].factor == doctest::Approx(1.2));
  CHECK(t[1].alone_ms == 40);
  CHECK(t[1].beside_ms == 48);
  CHECK(t[0].noise == 0);
}
TEST_CASE("a machine that grows slower all the time does not look like interference") {
  synthetic_machine m{.slow = [](int block) { return 1 + 0.2 * block; }};
  const auto t = measure_turns(m, 4);
  CHECK(t[0].factor == doctest::Approx(1.5));
  CHECK(t[1].factor == doctest::Approx(1.2));
  CHECK(t[0].noise > 0.1);
}
TEST_CASE("nor does a machine that is slow for a while") {
  // Three times as slow from the second turn to the third: of five turns two are half in it.
  for (const int first : {1, 2, 3, 4, 5}) {
    synthetic_machine m{.slow = [first](int b) { return b >= first && b < first + 4 ? 3.0 : 1.0; }};
    const auto t = measure_turns(m, 5);
    CAPTURE(first);
    CHECK(t[0].factor == doctest::Approx(1.5));
    CHECK(t[1].factor == doctest::Approx(1.2));
  }
}
TEST_CASE("what cannot be is measured again, a few times") {
  const auto may_be = [](const side_times& t) { return t.factor <= 100; };
  // The machine stands still in the first turn.
  const auto stalls = [](int block) { return block == 1 ? 100.0 : 1.0; };
  synthetic_machine m{.slow = stalls};
  const auto t = measure_turns_until(m, 1, 2, may_be);
  REQUIRE(t.has_value());
  CHECK((*t)[0].factor == doctest::Approx(1.5));
  CHECK((*t)[1].factor == doctest::Approx(1.2));
  CHECK(m.log == "ab+abab+ab");
  synthetic_machine once{.slow = stalls};
  CHECK_FALSE(measure_turns_until(once, 1, 1, may_be).has_value());
  // One side that cannot be is enough.
  synthetic_machine other;
  CHECK_FALSE(measure_turns_until(other, 1, 3, [](const side_times& s) {
                return s.factor < 1.4;
              }).has_value());
  CHECK(other.log.size() == 3 * 5);
}
TEST_CASE("no turns are refused") {
  synthetic_machine m;
  CHECK_THROWS_AS((void)measure_turns(m, 0), config_error);
}

}  // namespace
}  // namespace cohort::commands::pair_turns_test
