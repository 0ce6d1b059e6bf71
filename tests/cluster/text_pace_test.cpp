// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/text_pace.hpp>

#include <doctest/doctest.h>
#include <chrono>
#include <cstdint>

namespace cohort::cluster::text_pace_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

TEST_CASE("one prompt says how long prompts take, not what a token of them does") {
  text_pace p{1};
  CHECK(p.prefill_ms(50) == doctest::Approx(50));
  p.learn_prefill(100, 200ms);
  CHECK(p.prefill_ms(100) == doctest::Approx(200));
  CHECK(p.prefill_ms(50) == doctest::Approx(150));
}
TEST_CASE("prompts of few tokens do not make those of many seem slow") {
  text_pace p{1};
  // An iteration takes 20 ms, and 0.1 ms a token.
  for (int i = 1; i <= 100; ++i) {
    const std::uint32_t tokens = i % 10 == 0 ? 200 : 1;
    p.learn_prefill(tokens, 20ms + 100us * tokens);
  }
  CHECK(p.prefill_ms(1) == doctest::Approx(20.1).epsilon(0.05));
  CHECK(p.prefill_ms(1000) == doctest::Approx(120).epsilon(0.1));
}
TEST_CASE("the time between tokens is measured between reports with new tokens, not from idle") {
  text_pace p;
  p.learn_gap({}, t0);
  p.learn_gap({.running = 2, .generated_tokens = 1}, t0 + 1s);
  CHECK(p.gap_ms(2) == 0);
  p.learn_gap({.running = 2, .generated_tokens = 1}, t0 + 1050ms);  // No new token.
  p.learn_gap({.running = 2, .generated_tokens = 11}, t0 + 1100ms);
  CHECK(p.gap_ms(2) == doctest::Approx(20));  // 5 of each in 100 ms.
  CHECK(p.gap_ms(1) == doctest::Approx(20));
  CHECK(p.gap_ms(4) == doctest::Approx(30));  // Half of twice as much more.
  p.forget_gaps();
  CHECK(p.gap_ms(2) == 0);
}

}  // namespace
}  // namespace cohort::cluster::text_pace_test
