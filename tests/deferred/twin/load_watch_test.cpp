// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/load_watch.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>

namespace cohort::deferred::load_watch_test {
namespace {
using namespace std::chrono_literals;

/// Gamma gaps with a coefficient of variation.
class stream {
 public:
  stream(std::uint64_t seed, double cv) : random_{seed}, gap_{1 / (cv * cv), cv * cv} {}
  /// @returns How often a step was noticed in so many arrivals of a rate.
  int run(load_watch& w, int arrivals, double rate) {
    int noticed = 0;
    for (int i = 0; i < arrivals; ++i) {
      now += from_seconds(gap_(random_) / rate);
      noticed += w.add(now);
    }
    return noticed;
  }
  time_point now{};

 private:
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_;
};

TEST_CASE("a step to twice or half the rate is noticed within 384 arrivals, and when it was") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    stream s{seed, 1};
    load_watch w;
    s.run(w, 5000, 1000);
    for (const double rate : {2000.0, 1000.0}) {
      const time_point step = s.now;
      CHECK(s.run(w, 384, rate) == 1);
      CHECK(std::abs(to_seconds(w.since() - step)) < 0.3);
      s.run(w, 5000, rate);
    }
  }
}

TEST_CASE("a steady load is hardly ever taken for a step, bursts or not") {
  for (const double cv : {0.5, 1.0, 2.0, 4.0}) {
    int noticed = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      stream s{seed, cv};
      load_watch w;
      noticed += s.run(w, 20'000, 1000);
    }
    CAPTURE(cv);
    CHECK(noticed <= 20);  // Of 3125 blocks.
  }
}

TEST_CASE("before anything is known nothing is a step") {
  load_watch w;
  time_point now{};
  CHECK(w.since() == distant_past);
  for (int i = 0; i < 511; ++i) CHECK_FALSE(w.add(now += (i < 300 ? 1ms : 10ms)));
  CHECK(w.since() == time_point{} + 1ms);
}

TEST_CASE("arrivals at one instant, and long silences, are no trouble") {
  load_watch w;
  time_point now{};
  for (int i = 0; i < 10'000; ++i) w.add(now);
  now += 24h;
  for (int i = 0; i < 10'000; ++i) w.add(now += 1ms);
  CHECK(w.since() <= now);
}

}  // namespace
}  // namespace cohort::deferred::load_watch_test
