// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/standing.hpp>

#include <doctest/doctest.h>

#include <cmath>

namespace cohort::deferred::standing_test {
namespace {
using doctest::Approx;

constexpr double clear = 0.1;

TEST_CASE("the last rounds are a mean of four, the past one of sixteen times as many requests") {
  standing s;
  for (std::uint64_t i = 1; i <= 8; ++i)
    s.add(i <= 4 ? 0.08 : 0, i <= 4 ? 2 : 1, clear, 1000, 1000 * i);
  CHECK(s.rounds == 4);
  // The fifth takes a quarter off, and so on: .08 · (3/4)⁴.
  CHECK(s.excess == Approx(0.08 * std::pow(0.75, 4)));
  CHECK(s.ratio == Approx(1 + std::pow(0.75, 4)));
  CHECK(s.past_requests == 8000);
  CHECK(s.past_excess == Approx(0.04));
  CHECK(s.past_spread == Approx(0.0016));
  CHECK(s.past_chance() == Approx(2 * std::sqrt(0.0016 / 8)));
  for (std::uint64_t i = 9; i <= 40; ++i) s.add(0, 1, clear, 1000, 1000 * i);
  CHECK(s.past_requests == 16000);
  CHECK(s.past_excess == Approx(0.04 * 8 / 16 * std::pow(15. / 16, 24)));
}

TEST_CASE("a round counts in the past for what was new in it") {
  standing s;
  s.add(0.04, 1, clear, 1000, 5000);  // The first one for all.
  s.add(0, 1, clear, 1000, 5250);
  CHECK(s.excess == Approx(0.02));
  CHECK(s.past_requests == 1250);
  CHECK(s.past_excess == Approx(0.04 * 1000 / 1250));
  s.add(0, 1, clear, 1000, 9000);  // More have come than it judged.
  CHECK(s.past_requests == 2250);
  CHECK(s.past_excess == Approx(0.04 * 1000 / 2250));
  s.add(0.5, 1, clear, 1000, 9000);  // Nothing new.
  CHECK(s.past_excess == Approx(0.04 * 1000 / 2250));
}

TEST_CASE("of less than three independent rounds the past says nothing") {
  standing s;
  s.add(-0.01, 1, clear, 1000, 1000);
  s.add(-0.01, 1, clear, 1000, 2999);
  s.add(-0.01, 1, clear, 1000, 3998);
  CHECK(s.past_chance() == HUGE_VAL);
  s.add(-0.01, 1, clear, 1000, 4000);
  CHECK(s.past_chance() == Approx(0));
}

TEST_CASE("another load is a beginning for the last rounds, not for the past") {
  standing s;
  for (std::uint64_t i = 1; i <= 3; ++i) s.add(0, 1, clear, 1000, 1000 * i);
  s.add(0.2, 1, clear, 1000, 4000);
  CHECK(s.rounds == 1);
  CHECK(s.excess == Approx(0.2));
  CHECK(s.past_excess == Approx(0.05));
}

TEST_CASE("a change turns round who is compared with whom") {
  standing chosen{.which = {.window = window_kind::eager}};
  standing other{.which = {.window = window_kind::brief}};
  chosen.add(-0.02, 0.5, clear, 1000, 1000);
  other.add(0.01, 2, clear, 1000, 1000);
  other.rebase(chosen);
  CHECK(other.excess == Approx(0.03));
  CHECK(other.past_excess == Approx(0.03));
  CHECK(other.ratio == Approx(4));
  const standing before = chosen.of_present({.window = window_kind::frontrun});
  CHECK(before.which.window == window_kind::frontrun);
  CHECK(before.excess == Approx(0.02));
  CHECK(before.past_excess == Approx(0.02));
  CHECK(before.ratio == Approx(2));
  CHECK(before.rounds == 1);
  CHECK(before.past_requests == 1000);
  CHECK(before.seen == 1000);
  CHECK(chosen.why(false).excess == Approx(-0.02));
  CHECK(chosen.why(true).rounds == 1);
}

}  // namespace
}  // namespace cohort::deferred::standing_test
