// SPDX-License-Identifier: Apache-2.0
#include <chat/device_watch.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::chat::device_watch_test {
namespace {

using namespace std::chrono_literals;
using engine::device_state;
using llama::device_work;

constexpr time_point start{100s};
/// Suspect after 3 × 10 ms + 250 ms, hanging after 4 times as long.
constexpr duration expected = 10ms;
constexpr duration suspect = 280ms;
constexpr duration hung = 1120ms;

TEST_CASE("an iteration that takes too long is suspect, then hangs, and no instant earlier") {
  device_watch w;
  CHECK(w.next() == never);
  w.sent(device_work::iteration, start, expected);
  CHECK(w.next() == start + suspect);
  CHECK_FALSE(w.look(start + suspect - 1ns));
  CHECK(w.state() == device_state::healthy);
  CHECK_FALSE(w.look(start + suspect));
  CHECK(w.state() == device_state::suspect);
  CHECK(w.next() == start + hung);
  CHECK_FALSE(w.look(start + hung - 1ns));
  CHECK(w.look(start + hung) == device_work::iteration);
  CHECK(w.state() == device_state::quarantined);
  CHECK_FALSE(w.look(start + 60s));  // Once is enough.
  CHECK(w.state() == device_state::quarantined);
}

TEST_CASE("what returns in time, or late but before it hangs, leaves the device healthy") {
  device_watch w;
  time_point now = start;
  for (int i = 0; i < 1000; ++i) {
    w.sent(device_work::iteration, now, expected);
    now += i % 100 == 99 ? hung - 1ms : expected;
    CHECK_FALSE(w.look(now));
    w.returned(device_work::iteration, now);
    CHECK(w.state() == device_state::healthy);
  }
}

TEST_CASE("a device that goes on is healthy after the pause of a probe, which grows") {
  device_watch w;
  time_point now = start;
  for (const duration pause : {100ms, 200ms}) {
    w.sent(device_work::iteration, now, expected);
    CHECK_FALSE(w.look(now + suspect));
    CHECK(w.look(now + hung) == device_work::iteration);
    const time_point taken_out = now + hung;
    now = taken_out + 10ms;
    w.returned(device_work::iteration, now);
    w.sent(device_work::iteration, now, expected);  // It goes on with the texts that it has.
    CHECK(w.next() == taken_out + pause);
    CHECK_FALSE(w.look(taken_out + pause - 1ns));
    CHECK(w.state() == device_state::quarantined);
    now = taken_out + pause;
    CHECK_FALSE(w.look(now));
    CHECK(w.state() == device_state::healthy);
    w.returned(device_work::iteration, now);
  }
}

TEST_CASE("a prefill that hangs beside iterations keeps the device out until it returns") {
  device_watch w;
  w.sent(device_work::prefill, start, expected);
  time_point now = start;
  for (; now < start + hung; now += expected) {
    w.sent(device_work::iteration, now, expected);
    CHECK_FALSE(w.look(now));
    w.returned(device_work::iteration, now + expected / 2);
  }
  CHECK(w.look(start + hung) == device_work::prefill);
  for (; now < start + 10s; now += expected) {
    w.sent(device_work::iteration, now, expected);
    CHECK_FALSE(w.look(now));
    w.returned(device_work::iteration, now + expected / 2);
    CHECK(w.state() == device_state::quarantined);
  }
  w.returned(device_work::prefill, now);
  CHECK_FALSE(w.look(now));
  CHECK(w.state() == device_state::healthy);
}

TEST_CASE("work of which nothing is known hangs when its time is over, and no instant earlier") {
  device_watch w{{.first = 28s}};
  w.sent(device_work::prefill, start, std::nullopt);
  CHECK(w.next() == start + 7s);  // By the rule: a quarter.
  CHECK_FALSE(w.look(start + 7s));
  CHECK(w.state() == device_state::suspect);
  CHECK_FALSE(w.look(start + 28s - 1ns));
  CHECK(w.look(start + 28s) == device_work::prefill);
  CHECK(w.state() == device_state::quarantined);

  device_watch brief{{.first = 1ns}};  // Not before the floor is over so many times.
  brief.sent(device_work::iteration, start, std::nullopt);
  CHECK_FALSE(brief.look(start + 250ms));
  CHECK_FALSE(brief.look(start + 1s - 1ns));
  CHECK(brief.look(start + 1s) == device_work::iteration);
}

TEST_CASE("texts end when what has them has hung for so long, once, and not if it returned") {
  device_watch w{{.until_texts_end = 5s}};
  const auto hang = [&](device_work what, time_point at) {
    w.sent(what, at, expected);
    w.look(at + suspect);
    w.look(at + hung);
    CHECK(w.is_hanging());
  };
  hang(device_work::prefill, start);
  CHECK(w.next() == start + hung + 5s);
  CHECK_FALSE(w.take_hopeless(start + hung + 5s - 1ns));
  hang(device_work::iteration, start + 2s);  // Beside it.
  CHECK(w.take_hopeless(start + hung + 5s) == device_work::prefill);
  CHECK_FALSE(w.take_hopeless(start + hung + 5s));
  CHECK(w.next() == start + 2s + hung + 5s);
  w.returned(device_work::iteration, start + 4s);
  CHECK(w.is_hanging());
  CHECK(w.next() == never);
  CHECK_FALSE(w.take_hopeless(start + 1h));
  w.returned(device_work::prefill, start + 1h);
  CHECK_FALSE(w.is_hanging());
}

TEST_CASE("three failures of ten take the device out, and one more after its return does") {
  device_watch w;
  time_point now = start;
  const auto once = [&](bool fails) {
    w.sent(device_work::iteration, now, expected);
    now += 1ms;
    if (!fails) w.returned(device_work::iteration, now);
    return fails && w.failed(device_work::iteration, now);
  };
  CHECK_FALSE(once(true));
  for (int i = 0; i < 8; ++i) once(false);
  CHECK_FALSE(once(true));  // The second of ten.
  for (int i = 0; i < 8; ++i) once(false);
  CHECK_FALSE(once(true));  // The first one is the eleventh now.
  CHECK_FALSE(once(true));  // As is the second.
  CHECK(w.state() == device_state::healthy);
  CHECK(once(true));
  CHECK(w.state() == device_state::quarantined);
  CHECK_FALSE(w.is_hanging());
  CHECK_FALSE(once(true));  // It is out: nobody is to hear of it twice.
  const time_point out = now - 1ms;
  CHECK(w.next() == out + 100ms);
  CHECK_FALSE(w.look(out + 100ms));
  CHECK(w.state() == device_state::healthy);
  now = out + 100ms;
  for (int i = 0; i < 9; ++i) once(false);
  CHECK(once(true));  // The tenth of its trial.
  CHECK(w.next() == now + 200ms);
}

TEST_CASE("an iteration that hung and then failed counts as one that hangs") {
  device_watch w;
  w.sent(device_work::iteration, start, expected);
  w.look(start + suspect);
  CHECK(w.look(start + hung) == device_work::iteration);
  CHECK_FALSE(w.failed(device_work::iteration, start + 2s));
  CHECK_FALSE(w.is_hanging());
  CHECK_FALSE(w.failed(device_work::iteration, start + 2s));  // Of nothing.
}

TEST_CASE("options outside their ranges are refused") {
  CHECK_THROWS_AS(device_watch{{.first = 0s}}, config_error);
  CHECK_THROWS_AS(device_watch{{.until_texts_end = 0s}}, config_error);
  CHECK_THROWS_AS(device_watch{{.health = {.factor = 0}}}, config_error);
}

TEST_CASE("an iteration whose threads lack processors does not hang as soon") {
  device_watch w;
  w.sent(device_work::iteration, start, expected);
  const auto starved = [](duration waited) {
    return [waited](device_work what) {
      CHECK(what == device_work::iteration);
      return runtime::thread_load{.run = 10ms, .waited = waited};
    };
  };
  CHECK_FALSE(w.look(start + suspect, starved(100ms)));
  CHECK_FALSE(w.look(start + hung, starved(900ms)));
  CHECK(w.state() == device_state::suspect);
  CHECK(w.next() == start + hung + 800ms);
  CHECK(w.look(start + hung + 800ms, starved(900ms)) == device_work::iteration);
  CHECK(w.state() == device_state::quarantined);
}

TEST_CASE("a process that was stopped itself does not blame its device") {
  device_watch w;
  w.sent(device_work::iteration, start, expected);
  CHECK_FALSE(w.look(start + 1h));
  CHECK(w.state() == device_state::healthy);
  CHECK(w.next() == start + 1h + suspect);
  w.returned(device_work::iteration, start + 1h + expected);
  CHECK(w.next() == never);
}

}  // namespace
}  // namespace cohort::chat::device_watch_test
