// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/learned_latency.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>

namespace cohort::deferred::learned_latency_test {
namespace {
using namespace std::chrono_literals;

/// ℓ(b) = 5 ms + b ms, to 8, with an SLO of 30 ms.
learned_latency made(std::uint32_t sharing = 1, const network_delays& delays = {}) {
  return {latency_curve{linear_latency{5ms, 1ms}, 8}, 30ms, sharing, delays};
}
/// Batches of a size took so many times their profile.
void serve(learned_latency& l, std::uint32_t size, double ratio, int batches) {
  for (int i = 0; i < batches; ++i) {
    l.add({.model = {}, .size = size, .is_known = true, .log_ratio = std::log(ratio)});
  }
}

TEST_CASE("latencies count as often as batches share a device; delays come before the start") {
  learned_latency l = made(2, {.control = 100us, .data_per_request = 10us});
  CHECK(l.profile()(3) == 8ms);
  CHECK(l.run()(3) == 16ms);
  CHECK(l.sent()(3) == 16'130us);
  l.share(1);
  CHECK(l.run()(3) == 8ms);
  CHECK(l.sent()(8) == 13'180us);
}

TEST_CASE("what was learned counts when it is taken over, and only if it is to") {
  learned_latency l = made();
  serve(l, 2, 1.5, 100);
  CHECK(l.run()(2) == 7ms);
  CHECK_FALSE(l.correct({.is_on = false}));
  CHECK(l.correct({.is_on = true}));
  CHECK(l.correction(2) == doctest::Approx(1.5).epsilon(0.01));
  CHECK(to_ms(l.run()(2)) == doctest::Approx(10.5).epsilon(0.01));
  CHECK(to_ms(l.run()(8)) ==
        doctest::Approx(19.5).epsilon(0.01));  // No size has a level of its own yet.
  CHECK_FALSE(l.correct({.is_on = true}));     // Nothing is new.
  CHECK(l.correct({.is_on = false}));
  CHECK(l.run()(2) == 7ms);
  CHECK(l.correction(2) == 1);
}

TEST_CASE("sizes of an octave have a level of their own, and curves never fall") {
  learned_latency l = made();
  for (int i = 0; i < 500; ++i) {
    serve(l, 1, 2, 1);
    serve(l, 5, 1, 1);
  }
  CHECK(l.correct({.is_on = true, .quantile = 0.5}));
  CHECK(to_ms(l.run()(1)) == doctest::Approx(12).epsilon(0.15));
  CHECK(l.run()(4) >= l.run()(1));                               // Itself 9.
  CHECK(to_ms(l.run()(8)) == doctest::Approx(18).epsilon(0.3));  // Its octave was not seen.
  for (std::uint32_t b = 1; b < 8; ++b) CHECK(l.run()(b) <= l.run()(b + 1));
}

TEST_CASE("a batch of one counts as a part of the SLO at most") {
  learned_latency l = made();
  serve(l, 1, 20, 100);
  l.correct({.is_on = true, .most_of_slo = 0.8});
  CHECK(to_ms(l.run()(1)) == doctest::Approx(24));
  learned_latency wide{latency_curve{linear_latency{29ms, 1ms}, 8}, 30ms, 1, {}};
  wide.correct({.is_on = true, .most_of_slo = 0.8});
  CHECK(wide.run()(1) == 30ms);  // But the profile is the profile.
}

TEST_CASE("it is time to correct after a shift and now and then") {
  learned_latency l = made();
  int times = 0;
  for (int i = 0; i < 96; ++i) times += l.add({.model = {}, .size = 1, .is_known = true});
  CHECK(times == 6);  // 8, 16, 24, 32, 64, 96.
  bool shifted = false;
  for (int i = 0; i < 20; ++i) {
    shifted |= l.add({.model = {}, .size = 1, .is_known = true, .log_ratio = 1});
  }
  CHECK(shifted);
}

TEST_CASE("what is usual is told from 32 batches on") {
  learned_latency l = made();
  serve(l, 1, 2, 31);
  CHECK_FALSE(l.usual(1).is_known);
  serve(l, 1, 2, 1);
  REQUIRE(l.usual(1).is_known);
  CHECK(l.usual(1).log_ratio == doctest::Approx(std::log(2)).epsilon(0.02));
  learned_latency other = made();
  other.assume(l);
  CHECK(other.usual(1).is_known);
  CHECK(other.run()(1) == 6ms);  // It has not been taken over.
}

}  // namespace
}  // namespace cohort::deferred::learned_latency_test
