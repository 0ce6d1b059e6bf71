// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/quantile_sketch.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace cohort::quantile_sketch_test {
namespace {

TEST_CASE("an empty sketch knows nothing") {
  const quantile_sketch s;
  CHECK(s.count() == 0);
  CHECK(s.mean() == 0);
  CHECK(s.quantile(0.5) == 0);
}

TEST_CASE("equal values are told exactly") {
  quantile_sketch s;
  for (int i = 0; i < 3000; ++i) s.add(1.37);
  CHECK(s.mean() == doctest::Approx(1.37).epsilon(1e-12));
  for (const double q : {0.0, 0.5, 0.97, 1.0}) {
    CHECK(s.quantile(q) == doctest::Approx(1.37).epsilon(1e-12));
  }
}

TEST_CASE("values far apart are told themselves, none between, worked by hand") {
  quantile_sketch s{{}, 1e12};  // A memory so long that all weigh the same.
  for (const double x : {1.0, 3.0, 3.0, 3.0}) s.add(x);
  CHECK(s.quantile(0) == 1);
  CHECK(s.quantile(0.24) == 1);
  CHECK(s.quantile(0.26) == 3);
  CHECK(s.quantile(1) == 3);
  CHECK(s.mean() == doctest::Approx(2.5));
}

TEST_CASE("between neighbouring bins quantiles are linear, worked by hand") {
  quantile_sketch s{{}, 1e12};
  s.add(1.03);  // Bins are 1/16 wide here: [1, 1.0625) and [1.0625, 1.125).
  s.add(1.09);
  CHECK(s.quantile(0) == doctest::Approx(1.03));
  CHECK(s.quantile(0.25) == doctest::Approx(1.045));  // Half way from 1.03 to the edge, 1.06.
  CHECK(s.quantile(0.5) == doctest::Approx(1.06));
  CHECK(s.quantile(1) == doctest::Approx(1.09));
}

TEST_CASE("quantiles of many values are those of the values, within half a bin") {
  std::mt19937_64 random{5};
  std::lognormal_distribution<double> values{0, 0.4};
  quantile_sketch s{{}, 1e9};
  std::vector<double> all;
  for (int i = 0; i < 50'000; ++i) {
    all.push_back(values(random));
    s.add(all.back());
  }
  std::ranges::sort(all);
  for (const double q : {0.01, 0.1, 0.5, 0.9, 0.97, 0.99}) {
    CAPTURE(q);
    CHECK(s.quantile(q) ==
          doctest::Approx(all[static_cast<std::size_t>(q * 50'000)]).epsilon(0.03));
  }
}

TEST_CASE("old values fade: after its memory a third is left of them") {
  quantile_sketch s{{}, 100};
  for (int i = 0; i < 1000; ++i) s.add(1);
  for (int i = 0; i < 100; ++i) s.add(2);
  // Weight of the old: (1 + 1/100)^-100 = 0.37.
  CHECK(s.mean() == doctest::Approx(2 - 0.37).epsilon(0.01));
  for (int i = 0; i < 1900; ++i) s.add(2);
  CHECK(s.quantile(0.01) == doctest::Approx(2));
}

TEST_CASE("weights do not overflow: a million values in a memory of ten") {
  quantile_sketch s{{}, 10};
  for (int i = 0; i < 1'000'000; ++i) s.add(i % 2 == 0 ? 1 : 4);
  CHECK(std::isfinite(s.mean()));
  CHECK(s.mean() == doctest::Approx(2.57).epsilon(0.02));  // (1 · 1/1.1 + 4) / (1 + 1/1.1)
  CHECK(s.quantile(1) == doctest::Approx(4));
}

TEST_CASE("what is outside the range counts as its end, NaN not at all") {
  quantile_sketch s;
  s.add(1e-9);
  CHECK(s.quantile(0.5) == 1.0 / 64);
  s.clear();
  CHECK(s.count() == 0);
  s.add(HUGE_VAL);
  CHECK(s.quantile(0.5) == 64);
  s.add(NAN);
  CHECK(s.count() == 1);
  CHECK(s.mean() == 64);
}

TEST_CASE("impossible ranges and memories are refused") {
  CHECK_THROWS_AS((quantile_sketch{{.lowest = 0}}), config_error);
  CHECK_THROWS_AS((quantile_sketch{{.lowest = 2, .highest = 1}}), config_error);
  CHECK_THROWS_AS((quantile_sketch{{.highest = HUGE_VAL}}), config_error);
  CHECK_THROWS_AS((quantile_sketch{{}, 0.5}), config_error);
}

}  // namespace
}  // namespace cohort::quantile_sketch_test
