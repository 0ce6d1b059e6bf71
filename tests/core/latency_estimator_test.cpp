// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/latency_estimator.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace cohort::latency_estimator_test {
namespace {

/// Ratios with this bias and lognormal spread, mean 1, and stragglers.
class machine {
 public:
  explicit machine(std::uint64_t seed) : random_{seed} {}
  double ratio(double bias, double sigma, double straggler_share = 0) {
    const double noise = std::exp(sigma * normal_(random_) - sigma * sigma / 2);
    return bias * noise * (chance_(random_) < straggler_share ? 5 : 1);
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> chance_{0, 1};
};

TEST_CASE("before anything was measured the profile holds, with its spread") {
  const latency_estimator e;
  CHECK(e.factor(1, 0.99) == 1);
  CHECK(e.mean() == 1);
  CHECK(e.count() == 0);
  CHECK_THROWS_AS(latency_estimator{-0.1}, config_error);
  CHECK_THROWS_AS(latency_estimator{1.1}, config_error);
}

TEST_CASE("where batches take what the profile says, the factor is exactly 1") {
  latency_estimator e;
  for (std::uint32_t i = 0; i < 5000; ++i) CHECK_FALSE(e.add(1 + i % 40, 1));
  for (const double q : {0.5, 0.9, 0.97, 0.99}) {
    CHECK(e.factor(7, q) == doctest::Approx(1).epsilon(1e-9));
  }
  CHECK(e.shifts() == 0);
}

TEST_CASE("of few batches no high quantile is told") {
  CHECK(latency_estimator::known_part(0) == 0.5);
  CHECK(latency_estimator::known_part(19) == 0.5);
  CHECK(latency_estimator::known_part(100) == doctest::Approx(0.9));
  CHECK(latency_estimator::known_part(1000) == doctest::Approx(0.99));
}

TEST_CASE("mean and quantiles are learned, whatever stragglers there are") {
  for (const double sigma : {0.05, 0.1, 0.2}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(sigma);
      CAPTURE(seed);
      machine m{seed};
      latency_estimator e;
      for (int i = 0; i < 3000; ++i) e.add(8, m.ratio(1.2, sigma, 0.003));
      CHECK(e.mean() == doctest::Approx(1.2 * 1.012).epsilon(0.03));
      // The normal quantile of .97 is 1.88; with stragglers beyond it, a little more.
      const double exact = 1.2 * std::exp(1.88 * sigma - sigma * sigma / 2);
      CHECK(e.factor(8, 0.97) == doctest::Approx(exact).epsilon(0.02 + 0.3 * sigma));
      CHECK(e.shifts() <= 1);  // The first batches are the shift from 1 to 1.2, if it is far.
    }
  }
}

TEST_CASE("a change of 1.5 and back is noticed within 50 batches") {
  for (const double sigma : {0.0, 0.05, 0.1, 0.2}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      CAPTURE(sigma);
      CAPTURE(seed);
      machine m{seed};
      latency_estimator e;
      for (int i = 0; i < 2000; ++i) e.add(4, m.ratio(1, sigma, 0.003));
      const std::uint64_t before = e.shifts();
      CHECK(before == 0);
      for (int i = 0; i < 50; ++i) e.add(4, m.ratio(1.5, sigma, 0.003));
      CHECK(e.shifts() > before);
      CHECK(e.middle() == doctest::Approx(1.5).epsilon(0.02 + 0.6 * sigma));
      for (int i = 0; i < 50; ++i) e.add(4, m.ratio(1, sigma, 0.003));
      CHECK(e.middle() == doctest::Approx(1).epsilon(0.02 + 0.6 * sigma));
    }
  }
}

TEST_CASE("noise alone hardly ever seems a shift") {
  std::uint64_t shifts = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    machine m{seed};
    latency_estimator e;
    for (int i = 0; i < 20'000; ++i) e.add(4, m.ratio(1, 0.2, 0.01));
    shifts += e.shifts();
  }
  CHECK(shifts <= 2);  // Of 400,000 batches.
}

TEST_CASE("a size that differs from the others has a level of its own") {
  machine m{3};
  latency_estimator e;
  for (int i = 0; i < 4000; ++i) {
    e.add(1, m.ratio(1, 0.05));
    e.add(16, m.ratio(1.3, 0.05));
  }
  CHECK(e.factor(1, 0.5) == doctest::Approx(1).epsilon(0.05));
  CHECK(e.factor(16, 0.5) == doctest::Approx(1.3).epsilon(0.05));
  CHECK(e.factor(16, 0.97) < 1.3 * 1.2);  // Its own spread, not that of both.
}

TEST_CASE("a device at half speed is noticed within 50 of its batches, and forgotten as fast") {
  for (const double sigma : {0.02, 0.1, 0.2}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      CAPTURE(sigma);
      CAPTURE(seed);
      machine m{seed};
      level_tracker d;
      level_tracker all;  // Others, as healthy as can be.
      for (int i = 0; i < 500; ++i) all.add_log(0, sigma);
      CHECK(d.factor(all) == 1);
      for (int i = 0; i < 500; ++i) d.add_log(std::log(m.ratio(1, sigma, 0.003)), sigma);
      CHECK(d.factor(all) == doctest::Approx(1).epsilon(0.02 + 1.5 * sigma));
      for (int i = 0; i < 50; ++i) d.add_log(std::log(m.ratio(2, sigma, 0.003)), sigma);
      CHECK(d.factor(all) == doctest::Approx(2).epsilon(0.07 + 1.5 * sigma));
      for (int i = 0; i < 50; ++i) d.add_log(std::log(m.ratio(1, sigma, 0.003)), sigma);
      CHECK(d.factor(all) == doctest::Approx(1).epsilon(0.07 + 1.5 * sigma));
    }
  }
}

TEST_CASE("a healthy device is hardly ever taken for another") {
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    machine m{seed};
    level_tracker d;
    const level_tracker all;
    for (int i = 0; i < 5000; ++i) {
      d.add_log(std::log(m.ratio(1, 0.1, 0.003)), 0.1);
      wrong += d.factor(all) != 1;
    }
  }
  CHECK(wrong < 1000);  // Of 100,000.
}

TEST_CASE("a device that is all there is, or all of them at once, are not slow devices") {
  level_tracker d;
  level_tracker all;
  for (int i = 0; i < 100; ++i) {
    d.add_log(std::log(2), 0.05);
    all.add_log(std::log(2), 0.05);
    CHECK(d.factor(all) == 1);
  }
}

TEST_CASE("ratios that cannot be are ignored") {
  latency_estimator e;
  level_tracker d;
  const level_tracker all;
  for (const double bad : {0.0, -1.0, static_cast<double>(NAN)}) {
    e.add(1, bad);
    d.add_log(std::log(bad), 0.1);
  }
  CHECK(e.count() == 0);
  CHECK(d.factor(all) == 1);
  e.add(0, 1);  // A size of 0 counts as 1.
  CHECK(e.count() == 1);
}

}  // namespace
}  // namespace cohort::latency_estimator_test
