// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/admission_policy.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::kv::admission_policy_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("fifo sees priority and order, never a deadline") {
  const waiting_prompt first{.number = 1, .priority = 1, .first_token_by = never};
  const waiting_prompt second{.number = 2, .priority = 1, .first_token_by = time_point{1ms}};
  const waiting_prompt important{.number = 3, .priority = 0};
  CHECK(start_at_once::goes_before(first, second));
  CHECK_FALSE(start_at_once::goes_before(second, first));
  CHECK_FALSE(start_at_once::goes_before(first, first));
  CHECK(start_at_once::goes_before(important, first));
  CHECK(start_at_once::can_meet({1, 9, 9}, time_point{}, {}, time_point{1ms}));
  CHECK(start_at_once::can_seat({9, 9, 81}, {}));
  CHECK_FALSE(start_at_once::drops_late());
  CHECK_FALSE(start_at_once::promises());
  const group_view late{.shape = {1, 9, 9}, .first_token_by = time_point{}};
  CHECK(start_at_once::window(late, {}, time_point{1ms}) == start_window{});
}

TEST_CASE("its pieces have the size it was given, at least 1") {
  CHECK(start_at_once{}.chunk({}) == 0xFFFFFFFFU);
  CHECK(start_at_once{64}.chunk({.live = 3}) == 64);
  CHECK(start_at_once{0}.chunk({.live = 3}) == 1);
}

TEST_CASE("a shape's positions are its rectangle") {
  CHECK(prefill_shape{3, 10, 22}.positions() == 30);
  CHECK(prefill_shape{65536, 1U << 31U, 0}.positions() == std::uint64_t{1} << 47U);
}

}  // namespace
}  // namespace cohort::kv::admission_policy_test
