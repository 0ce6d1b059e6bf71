// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/queue_value.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::batching::queue_value_test {
namespace {

using doctest::Approx;

TEST_CASE("where nobody comes, those who wait are served and that is all") {
  const std::vector<double> times{0, 2, 3, 5};
  const queue_value q{times, 0};
  CHECK(q.usual() == 0);
  CHECK(q.wait(0, 4) == 0);
  // One waits for 4 ms, and then for its 2 ms.
  CHECK(q.wait(1, 4) == Approx(4 + 2));
  CHECK(q.wait(2, 4) == Approx(8 + 2 * 3));
  // Six are two rows of three: 10 ms.
  CHECK(q.wait(6, 0) == Approx(6 * 10));
  CHECK(q.price(2) == Approx(2));
}

TEST_CASE("a queue becomes what it usually is") {
  // D(x) = 2 + x / 2, half a request a millisecond: x = 1 + x / 4, so 4 / 3.
  const std::vector<double> times{0, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6};
  const queue_value q{times, 0.5};
  CHECK(q.usual() == Approx(4.0 / 3));
  // As long as a row takes that leaves what it found, a wait costs what it always does: nothing.
  const double row = 2 + 2.0 / 3;
  CHECK(q.wait(0, row) == Approx(-4.0 / 3 * row).epsilon(0.02));
}

TEST_CASE("a price by hand") {
  // D(x) = x, a quarter of a request a millisecond. A row of one leaves 1 / 4, so g = 1 / 4 + 1
  // / 32.
  const std::vector<double> times{0, 1, 2};
  const queue_value q{times, 0.25};
  CHECK(q.usual() == Approx(0.25));
  // V(4) = (4.5 - g) 4 + (1.125 - g) 1, and a quarter is left, as usual.
  const double four = 4.21875 * 4 + 0.84375;
  // V(5) = (5.625 - g) 5 + (1.40625 - g) 1.25; what follows, 9 / 8 x^2 - g x for x = 5 / 16, 5 /
  // 64,
  // ..., is 9 / 8 (5 / 16)^2 16 / 15 - g 5 / 16 4 / 3 = 0.
  const double five = 5.34375 * 5 + 1.125 * 1.25;
  CHECK(q.wait(4, 0) == Approx(four));
  CHECK(q.wait(5, 0) == Approx(five));
  CHECK(q.price(4) == Approx(4 - 0.28125 + 0.25 * (five - four)));
  // A millisecond with 3.75 that wait and a quarter that comes meanwhile.
  CHECK(q.wait(3.75, 1) == Approx(3.75 + 0.125 - 0.28125 + four));
}

TEST_CASE("with a load that nothing carries, serving a row is worth what it takes") {
  // D(x) = 2 + x up to 4, then 1.5 x: two thirds of a request a millisecond are carried.
  const std::vector<double> times{0, 3, 4, 5, 6};
  for (const double rate : {2.0 / 3, 1.0, 50.0}) {
    CAPTURE(rate);
    const queue_value q{times, rate};
    CHECK(q.usual() == Approx(4));
    // With 5000 behind, a row of four, 6 ms, leaves as many, and a row of one, 3 ms, one more: for
    // all of the 32 rows that are looked at.
    const double four = q.wait(5000 - 4, 6);
    const double one = q.wait(5000 - 1, 3);
    const double v = q.wait(5000, 0);
    CHECK(four - v == Approx(5000 * 6).epsilon(0.01));
    CHECK(one > four);
  }
}

TEST_CASE("more who wait cost more, and a higher load makes time dearer, whatever the times") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<double> times{0};
    const std::uint32_t most = 1 + random.below(64U);
    for (std::uint32_t n = 1; n <= most; ++n)
      times.push_back(times.back() + random.below(100U) + 1);
    const double capacity = most / times.back();
    double dearer = 0;
    for (const double load : {0.0, 0.3, 0.6, 0.9, 1.5}) {
      CAPTURE(load);
      const queue_value q{times, load * capacity};
      double before = -HUGE_VAL;
      for (double x = q.usual(); x < 3 * most; x += 1 + most / 8.0) {
        const double cost = q.wait(x, 10);
        CHECK(cost > before);
        before = cost;
      }
      const double price = q.price(2 * most + q.usual());
      CHECK(price > 0.9 * dearer);
      dearer = price;
    }
  }
}

}  // namespace
}  // namespace cohort::batching::queue_value_test
