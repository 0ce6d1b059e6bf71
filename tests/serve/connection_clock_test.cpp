// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/connection_clock.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include <support/random_source.hpp>

namespace cohort::serve::connection_clock_test {
namespace {

using namespace std::chrono_literals;

time_point at(duration d) { return time_point{} + d; }

constexpr connection_limits limits{
    .request = 75s, .header = 10s, .body = 4s, .taking = 5s, .silence = 1s, .bytes_per_s = 1000};

TEST_CASE("a header has its time from its first byte, which nothing extends") {
  connection_clock c{limits};
  CHECK_FALSE(c.is_late(at(1h)));  // It waits for nothing.
  c.await(awaited::header, at(1s));
  c.moved(100'000, at(10s));
  CHECK_FALSE(c.is_late(at(11s - 1ns)));
  CHECK(c.is_late(at(11s)));
  c.await(awaited::request, at(20s));
  CHECK_FALSE(c.is_late(at(95s - 1ns)));
  CHECK(c.is_late(at(95s)));
  c.moved(1, at(94s));
  CHECK(c.waits_for() == awaited::header);
  CHECK_FALSE(c.is_late(at(104s - 1ns)));
  CHECK(c.is_late(at(104s)));
}

TEST_CASE("a body has credit, to which each byte adds the time that the least rate gives it") {
  connection_clock c{limits};
  c.await(awaited::body, at(0s));
  c.moved(500, at(1s));  // 4 s and 500 / 1000 s; at most 1 s and 4 s.
  CHECK_FALSE(c.is_late(at(4500ms - 1ns)));
  CHECK(c.is_late(at(4500ms)));
  c.moved(0, at(4s));
  CHECK(c.is_late(at(4500ms)));
  c.moved(1'000'000, at(4s));  // No more than the limit.
  CHECK_FALSE(c.is_late(at(8s - 1ns)));
  CHECK(c.is_late(at(8s)));
  c.stop();
  CHECK_FALSE(c.is_late(at(9s)));
}

TEST_CASE("without a least rate any byte gives all of the time again") {
  connection_limits any = limits;
  any.bytes_per_s = 0;
  connection_clock c{any};
  c.await(awaited::body, at(0s));
  c.moved(1, at(3s));
  CHECK_FALSE(c.is_late(at(7s - 1ns)));
  CHECK(c.is_late(at(7s)));
}

TEST_CASE("15 MB at 1 MB/s are in time, and a drip is late when its credit is used up") {
  const connection_limits usual;
  connection_clock upload{usual};
  upload.await(awaited::body, at(0s));
  for (int ms = 100; ms <= 15'000; ms += 100) {
    CHECK_FALSE(upload.is_late(at(ms * 1ms)));
    upload.moved(100'000, at(ms * 1ms));
  }
  connection_clock drip{usual};
  drip.await(awaited::body, at(0s));
  int s = 0;
  while (!drip.is_late(at(s * 1s))) drip.moved(1024, at(s++ * 1s));
  CHECK(s == 11);  // The first adds nothing to 10 s; 10 more add 10 / 16 s: 10.625 s.
}

TEST_CASE("the credit of an answer is used while the client is to take something, and not else") {
  connection_clock c{limits};
  c.begin_answer();
  c.await_taking(at(10s));
  CHECK_FALSE(c.is_late(at(15s - 1ns)));
  CHECK(c.is_late(at(15s)));
  c.moved(1000, at(12s));  // 15 s and 1 s.
  c.stop_taking(at(13s));  // 3 s are left.
  CHECK_FALSE(c.is_late(at(1h)));
  c.await_taking(at(1h));
  CHECK_FALSE(c.is_late(at(1h + 3s - 1ns)));
  CHECK(c.is_late(at(1h + 3s)));
  c.stop_taking(at(1h + 4s));  // None is left, and not less.
  c.await_taking(at(2h));
  CHECK(c.is_late(at(2h)));
  c.moved(1000, at(2h));
  CHECK_FALSE(c.is_late(at(2h + 1s - 1ns)));
  c.begin_answer();
  c.await_taking(at(3h));
  CHECK_FALSE(c.is_late(at(3h + 5s - 1ns)));
}

TEST_CASE("what is discarded ends with a second of silence, or when a drip has used its credit") {
  connection_clock c{limits};
  c.await(awaited::silence, at(0s));
  CHECK_FALSE(c.is_late(at(1s - 1ns)));
  CHECK(c.is_late(at(1s)));
  for (int i = 1; i <= 7; ++i) {
    c.moved(1, at(i * 500ms));
    CHECK_FALSE(c.is_late(at(i * 500ms + 499ms)));
  }
  c.moved(1, at(4s));
  CHECK_FALSE(c.is_late(at(4s)));  // 4 s, and 8 bytes are worth 8 ms.
  CHECK(c.is_late(at(4s + 8ms)));
}

TEST_CASE("no transfer lasts longer than its limit and its bytes at the least rate") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    connection_clock c{limits};
    c.await(awaited::body, at(0s));
    duration now{0};
    duration last{0};
    std::size_t bytes = 0;
    for (;;) {
      now += random.below(1500) * 1ms;
      if (c.is_late(at(now))) break;
      if (random.one_in(4)) continue;
      const std::size_t n = 1 + random.below(std::size_t{2000});
      bytes += n;
      c.moved(n, at(now));
      last = now;
      REQUIRE_FALSE(c.is_late(at(now)));
      REQUIRE(now <= 4s + bytes * 1ms);
      if (now > 1h) break;
    }
    // From its last byte on it has no more than the limit.
    if (now <= 1h) REQUIRE(c.is_late(at(last + 4s)));
  }
}

}  // namespace
}  // namespace cohort::serve::connection_clock_test
