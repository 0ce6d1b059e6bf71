// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/arrival_meter.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <random>

namespace cohort::arrival_meter_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// Arrivals at constant gaps from one instant up to another.
void regular(arrival_meter& m, duration from, duration to, duration gap) {
  for (duration at = from; at < to; at += gap) m.add(t0 + at);
}

TEST_CASE("before a whole second has passed nothing is known of the load") {
  arrival_meter m;
  CHECK(m.measure(t0).rate == 0);
  CHECK(m.measure(t0).variability == 1);
  regular(m, 100ms, 900ms, 10ms);
  CHECK(m.measure(t0 + 950ms).over == 0s);
}

TEST_CASE("regular arrivals have their rate and gaps that do not vary") {
  arrival_meter m;
  regular(m, 0s, 10s, 10ms);
  const arrival_meter::load l = m.measure(t0 + 10s);
  CHECK(l.over == 9s);  // Of the first second the meter may have missed a part.
  CHECK(l.rate == doctest::Approx(100));
  CHECK(l.variability == doctest::Approx(0).epsilon(1e-6));
}

TEST_CASE("arrivals drawn with gamma gaps have their variability") {
  for (const double shape : {0.25, 0.5, 1.0}) {
    double sum = 0;
    for (unsigned seed = 1; seed <= 10; ++seed) {
      std::mt19937_64 random{seed};
      std::gamma_distribution<double> gap{shape, 0.005 / shape};
      arrival_meter m;
      double at = 0;
      while ((at += gap(random)) < 60) m.add(t0 + from_seconds(at));
      const arrival_meter::load l = m.measure(t0 + 60s);
      CHECK(l.over == 59s);
      CHECK(l.rate == doctest::Approx(200).epsilon(0.1));
      sum += l.variability;
    }
    CHECK(sum / 10 == doctest::Approx(1 / shape).epsilon(0.1));
  }
}

TEST_CASE("requests that come together count as gaps of nothing") {
  arrival_meter m;
  for (int i = 0; i < 1000; ++i) m.add(t0 + i * 10ms, 2);
  const arrival_meter::load l = m.measure(t0 + 10s);
  CHECK(l.rate == doctest::Approx(200));
  CHECK(l.variability == doctest::Approx(1));  // Gaps 0 and 10 ms: variance and squared mean 25.
}

TEST_CASE("a load that has changed is measured from the change on") {
  arrival_meter m;
  regular(m, 0s, 30s, 10ms);
  regular(m, 30s, 45s, 2ms);
  const arrival_meter::load l = m.measure(t0 + 45s);
  CHECK(l.over == 15s);
  CHECK(l.rate == doctest::Approx(500));
}

TEST_CASE("a pause is no gap, and what was before it is not of this load") {
  arrival_meter m;
  regular(m, 0s, 20s, 10ms);
  regular(m, 50s, 60s, 10ms);
  const arrival_meter::load l = m.measure(t0 + 60s);
  CHECK(l.over == 10s);
  CHECK(l.rate == doctest::Approx(100));
  CHECK(l.variability < 0.01);
}

TEST_CASE("a load that has ended is told as it was, while it is kept") {
  arrival_meter m;
  regular(m, 0s, 20500ms, 10ms);
  for (const duration later : {26s, 80s, 140s}) {
    CHECK(m.measure(t0 + later).rate == doctest::Approx(100));  // Not of its last half second.
  }
  CHECK(m.measure(t0 + 140s).over == 7s);  // 13 to 19: what is kept of it.
  CHECK(m.measure(t0 + 10min).rate == 0);
}

TEST_CASE("a single arrival long ago is no load") {
  arrival_meter m;
  m.add(t0);
  CHECK(m.measure(t0 + 30s).rate == 0);
}

}  // namespace
}  // namespace cohort::arrival_meter_test
