// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/load_steps.hpp>

#include <doctest/doctest.h>
#include <support/random_source.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <support/complaint.hpp>
#include <vector>

namespace cohort::sim::load_steps_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a gap takes 1 / part of its time, worked by hand") {
  // At half the rate from 10 to 20 ns, at none to 30, at twice from then on.
  const load_steps s{{{10ns, 0.5}, {20ns, 0}, {30ns, 2}}};
  CHECK(s.stretched(4) == 4);
  CHECK(s.stretched(10) == 10);
  CHECK(s.stretched(12) == 14);
  CHECK(s.stretched(15) == 20);  // All that is drawn until 15 has come by 20.
  CHECK(s.stretched(16) == 30.5);
  CHECK(s.drawn(5) == 5);
  CHECK(s.drawn(14) == 12);
  CHECK(s.drawn(25) == 15);
  CHECK(s.drawn(30.5) == 16);
  CHECK(s.part_at(time_point{9ns}) == 1);
  CHECK(s.part_at(time_point{10ns}) == 0.5);
  CHECK(s.part_at(time_point{1s}) == 2);
}

TEST_CASE("what is drawn beyond a load of 0 for ever never comes") {
  const load_steps s{{{10ns, 0}}};
  CHECK(s.stretched(10) == 10);
  CHECK(std::isinf(s.stretched(10.5)));
  const load_steps silent{{{0ns, 0}}};
  CHECK(std::isinf(silent.stretched(1)));
}

TEST_CASE("no steps change nothing") {
  CHECK(load_steps{}.empty());
  CHECK(load_steps{}.stretched(7) == 7);
  CHECK(load_steps{}.part_at(time_point{}) == 1);
}

TEST_CASE("drawn and stretched are inverse where the load is not 0") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    std::vector<load_step> steps;
    duration at{random.below(100)};
    for (std::uint32_t i = random.below(6U); i > 0; --i) {
      steps.push_back({at, 0.1 + random.below(30) / 10.0});
      at += duration{1 + random.below(100)};
    }
    const load_steps s{steps};
    for (int i = 0; i < 50; ++i) {
      const double x = random.below(60'000) / 100.0;
      CHECK(s.drawn(s.stretched(x)) == doctest::Approx(x));
      CHECK(s.stretched(x + 0.01) > s.stretched(x));
    }
  }
}

TEST_CASE("impossible steps are refused by name") {
  CHECK(test::gist_of<config_error>([&] { (void)(load_steps{{{-1ns, 1}}}); }) ==
        "load: at ... at least 0 ... rise");
  CHECK(test::gist_of<config_error>([&] { (void)(load_steps{{{5ns, 1}, {5ns, 2}}}); }) ==
        "load: at ... at least 0 ... rise");
  CHECK(test::gist_of<config_error>([&] { (void)(load_steps{{{5ns, -1}}}); }) ==
        "load: part ... at least 0");
  CHECK(test::gist_of<config_error>([&] { (void)(load_steps{{{5ns, NAN}}}); }) ==
        "load: part ... at least 0");
}

}  // namespace
}  // namespace cohort::sim::load_steps_test
