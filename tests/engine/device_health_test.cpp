// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/device_health.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <support/complaint.hpp>

namespace cohort::engine::device_health_test {
namespace {
using namespace std::chrono_literals;
using kind = health_event::kind;

constexpr time_point at(duration since) { return time_point{} + since; }
constexpr device_entry first{device_id{0}, 0};

struct fixture {
  explicit fixture(const health_options& o = {.floor = 50ms, .first_probe = 1s},
                   std::uint32_t capacity = 1)
      : health{o} {
    health.add_device(device_id{0}, capacity);
  }
  void run(duration from, bool failed) {
    health.on_dispatch(first, at(from), 10ms);
    last = health.on_complete(first, failed, at(from + 10ms));
  }
  [[nodiscard]] device_state state() const { return health.state(device_id{0}); }

  device_health health;
  std::optional<health_event> last;
};

TEST_CASE(
    "a batch that runs three times as long as it should and the floor is suspect, and ends all the "
    "same") {
  fixture f;
  f.health.on_dispatch(first, at(100ms), 10ms);
  CHECK(f.health.next() == at(180ms));  // 100 + 3 · 10 + 50.
  CHECK_FALSE(f.health.take_due(at(180ms) - 1ns));
  CHECK(f.state() == device_state::healthy);
  CHECK_FALSE(f.health.take_due(at(180ms)));
  CHECK(f.state() == device_state::suspect);
  CHECK(f.health.next() == at(420ms));  // 100 + 4 · 80.
  CHECK_FALSE(f.health.on_complete(first, false, at(300ms)));
  CHECK(f.state() == device_state::healthy);
  CHECK(f.health.next() == never);
}

TEST_CASE(
    "one that runs four times as long as that hangs: it is given up, and probed when it has let "
    "go") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms);
  f.health.on_dispatch(first, at(10ms), 20ms);  // Sent ahead: it has not begun.
  CHECK_FALSE(f.health.take_due(at(80ms)));
  const auto e = f.health.take_due(at(320ms));
  REQUIRE(e);
  CHECK(e->what == kind::hangs);
  CHECK(e->at == first);
  CHECK(f.state() == device_state::quarantined);
  CHECK(f.health.next() == never);
  CHECK_FALSE(f.health.on_complete(first, false, at(5s)));
  CHECK(f.health.next() == never);  // The second one is still there.
  CHECK_FALSE(f.health.on_complete(first, true, at(6s)));
  CHECK(f.health.next() == at(6s));  // 1 s after 320 ms has passed.
  const auto p = f.health.take_due(at(6s));
  REQUIRE(p);
  CHECK(p->what == kind::probe);
  CHECK(f.health.next() == at(6110ms));  // Its own limit: 3 · 20 + 50.
  CHECK(f.health.on_probe(device_id{0}, false, at(6s)));
  CHECK(f.state() == device_state::healthy);
}

TEST_CASE(
    "a batch that may last longer than is expected of it has that time, and its device's probe has "
    "not") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms, 100ms);
  CHECK(f.health.next() == at(350ms));  // 3 · 100 + 50.
  CHECK_FALSE(f.health.take_due(at(350ms)));
  CHECK(f.health.next() == at(1400ms));  // 4 · 350.
  CHECK(f.health.take_due(at(1400ms)));
  CHECK_FALSE(f.health.on_complete(first, true, at(3s)));
  CHECK(f.health.take_due(f.health.next())->what == kind::probe);
  CHECK(f.health.next() == at(3080ms));  // 3 · 10 + 50.
  fixture g;
  g.health.on_dispatch(first, at(0ms), 100ms, 10ms);  // Less says nothing.
  CHECK(g.health.next() == at(350ms));
}

TEST_CASE("a batch sent ahead has its time from the end of the one before it") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms);
  f.health.on_dispatch(first, at(10ms), 20ms);
  CHECK_FALSE(f.health.on_complete(first, false, at(70ms)));
  CHECK(f.health.next() == at(180ms));  // 70 + 3 · 20 + 50.
}

TEST_CASE("a device hangs until it has let go, and not because it failed or waits for a probe") {
  fixture f;
  CHECK(f.health.hanging_devices() == 0);
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK_FALSE(f.health.take_due(at(80ms)));
  CHECK(f.health.hanging_devices() == 0);  // Only suspect.
  CHECK(f.health.take_due(at(320ms)));
  CHECK(f.health.hanging_devices() == 1);
  f.health.remove_device(device_id{0});
  CHECK(f.health.hanging_devices() == 1);
  f.health.on_complete(first, false, at(330ms));
  CHECK(f.health.hanging_devices() == 0);

  fixture failing;
  for (int i = 0; i < 3; ++i) failing.run(10ms * i, true);
  CHECK(failing.state() == device_state::quarantined);
  CHECK(failing.health.hanging_devices() == 0);
}

TEST_CASE("three of ten batches that fail take a device out, two do not") {
  fixture f;
  for (int round = 0; round < 3; ++round) {
    f.run(0ms, true);
    f.run(10ms, true);
    for (int i = 0; i < 9; ++i) f.run(20ms, false);  // Of the last ten, one at most.
    CHECK(f.state() == device_state::healthy);
  }
  f.run(1s, true);
  f.run(2s, false);
  f.run(3s, true);
  CHECK_FALSE(f.last);
  f.run(4s, true);
  REQUIRE(f.last);
  CHECK(f.last->what == kind::fails);
  CHECK(f.state() == device_state::quarantined);
  CHECK(f.health.next() == at(5s + 10ms));
}

TEST_CASE(
    "probes wait twice as long each time, up to a limit, and a device that is back is on trial") {
  fixture f{{.failures = 1, .first_probe = 1s, .longest_probe = 3s}};
  f.run(0s, true);
  CHECK(f.health.next() == at(1010ms));
  const auto probe = [&](duration when, bool failed) {
    const auto e = f.health.take_due(at(when));
    REQUIRE(e);
    CHECK(e->what == kind::probe);
    return f.health.on_probe(device_id{0}, failed, at(when));
  };
  CHECK_FALSE(probe(2s, true));
  CHECK(f.health.next() == at(4s));
  CHECK_FALSE(probe(4s, true));
  CHECK(f.health.next() == at(7s));  // 3 s, not 4.
  CHECK(probe(7s, false));
  CHECK(f.health.next() == never);
  f.run(8s, true);
  CHECK(f.state() == device_state::quarantined);
  CHECK(f.health.next() == at(11s + 10ms));
  CHECK(probe(12s, false));
  for (int i = 0; i < 10; ++i) f.run(12s, false);
  f.run(13s, true);  // What it did before is forgiven.
  CHECK(f.health.next() == at(14s + 10ms));
}

TEST_CASE(
    "failures that requests are blamed for count against no device, until there are three in a "
    "row") {
  fixture f;
  const auto blame = [&](duration when) {
    f.health.on_dispatch(first, at(when), 10ms);
    f.last = f.health.on_complete(first, true, at(when + 10ms), true);
  };
  for (int round = 0; round < 5; ++round) {
    blame(10ms * round);
    blame(10ms * round);
    f.run(10ms * round, false);
    CHECK(f.state() == device_state::healthy);
  }
  blame(1s);
  blame(2s);
  CHECK_FALSE(f.last);
  blame(3s);
  REQUIRE(f.last);
  CHECK(f.last->what == kind::fails);
  // A probe decides, at once; a device that passes it is not on trial.
  CHECK(f.health.next() == at(3010ms));
  REQUIRE(f.health.take_due(at(3010ms)));
  CHECK(f.health.on_probe(device_id{0}, false, at(3020ms)));
  f.run(4s, true);
  CHECK(f.state() == device_state::healthy);
}

TEST_CASE("one that fails its probe, too, was to blame all the same") {
  fixture f;
  for (int i = 0; i < 3; ++i) {
    f.health.on_dispatch(first, at(0s), 10ms);
    f.health.on_complete(first, true, at(10ms), true);
  }
  REQUIRE(f.health.take_due(at(10ms)));
  CHECK_FALSE(f.health.on_probe(device_id{0}, true, at(20ms)));
  CHECK(f.health.next() == at(2020ms));  // Twice the first pause.
}

TEST_CASE(
    "a device that is out for a failure that was a request's is probed at once, and as it was") {
  fixture f;
  for (int i = 0; i < 3; ++i) f.run(0ms, true);
  REQUIRE(f.health.take_due(at(2s)));
  CHECK(f.health.on_probe(device_id{0}, false, at(2s)));
  for (int i = 0; i < 7; ++i) f.run(2s, false);
  f.run(2s, true);  // On trial: out for 2 s.
  CHECK(f.state() == device_state::quarantined);
  CHECK(f.health.next() == at(4010ms));
  f.health.forgive(device_id{0}, at(2100ms));
  CHECK(f.health.next() == at(2100ms));
  REQUIRE(f.health.take_due(at(2100ms)));
  CHECK(f.health.on_probe(device_id{0}, false, at(2110ms)));
  for (int i = 0; i < 2; ++i) f.run(3s, false);
  f.run(4s, true);  // The tenth batch since it was back: still on trial, and out for 2 s.
  CHECK(f.health.next() == at(6010ms));
}

TEST_CASE("two failures are left of three of which one was a request's") {
  fixture f;
  f.run(0ms, true);
  f.run(0ms, true);
  f.health.forgive(device_id{0}, at(10ms));
  f.run(10ms, true);
  CHECK(f.state() == device_state::healthy);
  f.run(20ms, true);
  CHECK(f.state() == device_state::quarantined);
}

TEST_CASE("a device that hung is probed half a second after it has let go, at the latest") {
  fixture f{{.floor = 50ms, .first_probe = 10s}};
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK_FALSE(f.health.take_due(at(80ms)));
  REQUIRE(f.health.take_due(at(320ms)));
  f.health.on_complete(first, true, at(1s));
  CHECK(f.health.next() == at(1500ms));
  REQUIRE(f.health.take_due(at(1500ms)));
  CHECK_FALSE(f.health.on_probe(device_id{0}, true, at(1510ms)));
  CHECK(f.health.next() == at(21510ms));  // It does not answer: as one that fails.
}

TEST_CASE(
    "a probe hangs when a batch of the longest expected time would, and counts until it ends") {
  fixture f{{.floor = 50ms, .failures = 1, .first_probe = 1s}};
  f.run(0s, true);
  REQUIRE(f.health.take_due(at(1010ms)));
  const std::uint64_t before = f.health.hang_changes();
  CHECK(f.health.next() == at(1090ms));  // 3 · 10 + 50 later.
  CHECK_FALSE(f.health.take_due(at(1090ms)));
  CHECK(f.health.hanging_devices() == 0);
  const auto e = f.health.take_due(at(1330ms));
  REQUIRE(e);
  CHECK(e->what == kind::probe_hangs);
  CHECK(e->at.device == device_id{0});
  CHECK_FALSE(e->is_new);
  CHECK(f.health.next() == never);
  CHECK(f.health.hanging_devices() == 1);
  CHECK(f.health.hang_changes() == before + 1);
  CHECK_FALSE(f.health.on_probe(device_id{0}, false, at(9s)));  // Whatever it found.
  CHECK(f.state() == device_state::quarantined);
  CHECK(f.health.hanging_devices() == 0);
  CHECK(f.health.hang_changes() == before + 2);
  CHECK(f.health.next() == at(9500ms));
  REQUIRE(f.health.take_due(at(9500ms)));
  CHECK(f.health.on_probe(device_id{0}, false, at(9510ms)));
  CHECK(f.health.next() == never);
}

TEST_CASE("a batch that comes to a device while it is probed leaves the probe's time alone") {
  fixture f{{.floor = 50ms, .failures = 1, .first_probe = 1s}};
  f.run(0s, true);
  REQUIRE(f.health.take_due(at(1010ms)));
  f.run(1020ms, true);
  CHECK(f.health.next() == at(1090ms));
  CHECK(f.health.on_probe(device_id{0}, false, at(1040ms)));
}

TEST_CASE("on trial one failure is enough") {
  fixture f{{.failures = 3, .first_probe = 1s}};
  for (int i = 0; i < 3; ++i) f.run(0ms, true);
  REQUIRE(f.health.take_due(at(2s)));
  CHECK(f.health.on_probe(device_id{0}, false, at(2s)));
  for (int i = 0; i < 9; ++i) f.run(2s, false);
  f.run(3s, true);
  CHECK(f.state() == device_state::quarantined);
}

TEST_CASE("entries hang one by one; a device is suspect while one does") {
  fixture f{{.floor = 50ms}, 2};
  const device_entry second{device_id{0}, 1};
  f.health.on_dispatch(first, at(0ms), 10ms);
  f.health.on_dispatch(second, at(0ms), 20ms);
  CHECK_FALSE(f.health.take_due(at(110ms)));  // Both are late: 80, and 3 · 20 + 50.
  CHECK_FALSE(f.health.on_complete(first, false, at(111ms)));
  CHECK(f.state() == device_state::suspect);
  const auto e = f.health.take_due(at(440ms));
  REQUIRE(e);
  CHECK(e->at == second);
}

TEST_CASE("what could not be given up is told again") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK_FALSE(f.health.take_due(at(80ms)));
  REQUIRE(f.health.take_due(at(320ms)));
  f.health.postpone(first, at(320ms));
  CHECK(f.health.next() == at(370ms));
  const auto e = f.health.take_due(at(370ms));
  REQUIRE(e);
  CHECK(e->what == kind::hangs);
}

TEST_CASE("a device that was removed is not probed, and what it has is still followed") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms);
  f.health.remove_device(device_id{0});
  CHECK_FALSE(f.health.is_present(device_id{0}));
  CHECK_FALSE(f.health.take_due(at(80ms)));
  REQUIRE(f.health.take_due(at(320ms)));
  f.health.on_complete(first, true, at(1s));
  CHECK(f.health.next() == never);
  f.health.add_device(device_id{0}, 1);
  CHECK(f.state() == device_state::healthy);
  CHECK_FALSE(f.health.is_probing(device_id{0}));
}

TEST_CASE("who asks far too late was stopped himself: batches have their time once more") {
  fixture f;
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK_FALSE(f.health.take_due(at(80ms) + 251ms));
  CHECK(f.state() == device_state::healthy);
  CHECK(f.health.next() == at(331ms + 80ms));
  CHECK_FALSE(f.health.take_due(at(411ms)));
  CHECK(f.state() == device_state::suspect);
}

TEST_CASE("who is usually late hears of a hang all the same, however short the floor") {
  fixture f{{.floor = 1us}};
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK_FALSE(f.health.take_due(at(100ms)));  // 70 ms after that was due,
  CHECK(f.state() == device_state::suspect);
  REQUIRE(f.health.take_due(at(300ms)));  // and 180 ms.
  CHECK(f.state() == device_state::quarantined);
}

/// Of a batch that is suspect after 80 ms, and hangs after 320 by time alone.
struct late_fixture : fixture {
  using load = runtime::thread_load;
  explicit late_fixture(double starved_patience = 8)
      : fixture{{.floor = 50ms, .starved_patience = starved_patience, .first_probe = 1s}} {
    health.on_dispatch(first, at(0ms), 10ms);
    CHECK_FALSE(look(80ms, {.run = 5ms, .waited = 70ms}));
    CHECK(state() == device_state::suspect);
    CHECK(health.next() == at(320ms));
  }
  bool look(duration now, load l) {
    return health
        .take_due(at(now),
                  [&](device_entry e) {
                    CHECK(e == first);
                    return l;
                  })
        .has_value();
  }
};

TEST_CASE("a late batch whose thread lacks processors has as much more time") {
  late_fixture f;
  // Of 240 ms since then it waited 220.
  CHECK_FALSE(f.look(320ms, {.run = 25ms, .waited = 290ms}));
  CHECK(f.state() == device_state::suspect);
  CHECK(f.health.next() == at(540ms));  // 320 + 220.
  // It waited 30 ms more, but the next look is not before 50 ms have passed.
  CHECK_FALSE(f.look(540ms, {.run = 215ms, .waited = 320ms}));
  CHECK(f.health.next() == at(590ms));
  SUBCASE("and hangs when it has had all its time") {
    CHECK(f.look(590ms, {.run = 265ms, .waited = 320ms}));
    CHECK(f.state() == device_state::quarantined);
  }
  SUBCASE("and is well if it ends before") {
    CHECK_FALSE(f.health.on_complete(first, false, at(580ms)));
    CHECK(f.state() == device_state::healthy);
  }
}

TEST_CASE("a thread that is blocked, or that computes all the time, has no more time") {
  late_fixture blocked;
  CHECK(blocked.look(320ms, {.run = 5ms, .waited = 70ms}));
  late_fixture busy;
  CHECK(busy.look(320ms, {.run = 245ms, .waited = 70ms, .is_runnable = true}));
  late_fixture unknown;
  CHECK(unknown.look(320ms, {}));
}

TEST_CASE("a thread that never gets a processor has eight times its patience, and no more") {
  late_fixture f;
  // Its wait has not ended, so that nothing is counted yet.
  const runtime::thread_load ready{.run = 5ms, .waited = 70ms, .is_runnable = true};
  for (duration now = 320ms; now < 2560ms; now += 240ms) {
    CHECK_FALSE(f.look(now, ready));
    CHECK(f.health.next() == at(std::min(now + 240ms, duration{2560ms})));  // 8 · 320.
  }
  CHECK(f.look(2560ms, ready));
  late_fixture none{1};
  CHECK(none.look(320ms, ready));
}

TEST_CASE("off, it says nothing") {
  fixture f{{.is_on = false}};
  for (int i = 0; i < 10; ++i) f.run(0ms, true);
  CHECK_FALSE(f.last);
  f.health.on_dispatch(first, at(0ms), 10ms);
  CHECK(f.health.next() == never);
}

TEST_CASE("options outside their ranges are refused") {
  const auto refuses = [](const health_options& o, const char* text) {
    CHECK(test::gist_of<config_error>([&] { device_health{o}; }) == text);
  };
  refuses({.factor = 0.5}, "health: factor ... 1 to 1e6");
  refuses({.floor = 0ms}, "health: floor ... above 0");
  refuses({.patience = 0}, "health: patience ... 1 to 1e6");
  refuses({.starved_patience = 0.5}, "health: starved_patience ... 1 to 1e6");
  refuses({.failures = 2, .window = 65}, "health: window ... 1 to 64");
  refuses({.failures = 0}, "health: failures ... 1 to window");
  refuses({.failures = 11}, "health: failures ... 1 to window");
  refuses({.first_probe = 2s, .longest_probe = 1s},
          "health: first_probe ... above 0 ... longest_probe at least");
}

}  // namespace
}  // namespace cohort::engine::device_health_test
