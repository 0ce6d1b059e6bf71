// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/llm/token_times.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <vector>

namespace cohort::sim::token_times_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("quantiles of first tokens and of gaps are by rank") {
  const std::vector<decode_request> requests{{1, 3, time_point{1ms}}, {1, 2, time_point{2ms}}};
  decode_times t{2};
  CHECK(t.last() == time_point{});
  CHECK(t.between_tokens_ms(0.5) == 0);
  t.note_first(0, time_point{5ms});
  t.note_first(1, time_point{9ms});
  t.note(0, time_point{8ms});
  t.note(0, time_point{18ms});
  t.note(1, time_point{13ms});
  CHECK(t.tokens() == 5);
  CHECK(t.last() == time_point{18ms});
  CHECK(t.first_token_ms(requests, 0.5) == 4);
  CHECK(t.first_token_ms(requests, 0.99) == 7);
  CHECK(t.between_tokens_ms(0.3) == 3);
  CHECK(t.between_tokens_ms(0.5) == 4);
  CHECK(t.between_tokens_ms(0.99) == 10);
  CHECK(t.take_latest() == std::vector<time_point>{time_point{18ms}, time_point{13ms}});
  CHECK(t.take_first() == std::vector<time_point>{time_point{5ms}, time_point{9ms}});
}

}  // namespace
}  // namespace cohort::sim::token_times_test
