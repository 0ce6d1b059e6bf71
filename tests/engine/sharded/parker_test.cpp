// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/parker.hpp>

#include <doctest/doctest.h>

#include <cohort/core/clock.hpp>

#include <atomic>
#include <thread>

namespace cohort::engine::parker_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("who has work does not sleep, and a time that has passed ends it") {
  parker p;
  CHECK_FALSE(p.unpark());  // It is awake.
  p.park_until(never, 1us, [] { return true; });
  const time_point now = steady_clock{}.now();
  p.park_until(now, duration{0}, [] { return false; });
  p.park_until(now + 1h, 1h, [] { return false; });  // An hour early.
  CHECK_FALSE(p.unpark());
}
TEST_CASE("whatever the moment at which something is given, the sleeper gets it") {
  parker p;
  std::atomic<int> given{0};
  constexpr int last = 20000;
  std::thread giver{[&] {
    for (int i = 0; i < last; ++i) {
      ++given;
      p.unpark();
    }
  }};
  for (int seen = 0; seen < last; seen = given) {
    p.park_until(never, duration{0}, [&] { return given != seen; });
  }
  giver.join();
  CHECK(given == last);
}

}  // namespace
}  // namespace cohort::engine::parker_test
