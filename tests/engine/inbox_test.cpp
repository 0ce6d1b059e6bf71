// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/inbox.hpp>

#include <cohort/core/clock.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace cohort::engine::inbox_test {
namespace {

constexpr auto nothing_matters = [](const request&) noexcept { return false; };

TEST_CASE("messages are taken once, in order") {
  inbox box;
  request a;
  request b;
  CHECK(box.post_arrival(a));
  CHECK(box.post_arrival(b));
  box.post_end({device_id{3}, true});
  int ran = 0;
  box.post_control([&](time_point) { ++ran; });
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(&m.arrivals.front() == &a);
  CHECK(&m.arrivals.back() == &b);
  CHECK(m.ends.at(0).at == device_id{3});
  m.controls.at(0)({});
  CHECK(ran == 1);
  m.arrivals.clear();
  m.ends.clear();
  m.controls.clear();
  CHECK_FALSE(box.take(m));
}
TEST_CASE("a cancellation is posted once, and forgotten when its request ends") {
  inbox box;
  request r;
  box.post_cancel(r);  // Not in the engine.
  inbox::messages m;
  CHECK_FALSE(box.take(m));
  CHECK(box.post_arrival(r));
  box.post_cancel(r);
  box.post_cancel(r);
  CHECK(box.take(m));
  m.arrivals.clear();
  CHECK(m.cancels.size() == 1);
  box.forget(r, m);
  CHECK(m.cancels.at(0) == nullptr);
  CHECK(r.hold == engine_hold::none);
  m.cancels.clear();
  CHECK(box.post_arrival(r));
  box.post_cancel(r);
  box.forget(r, m);  // Still waiting in the box.
  CHECK(box.take(m));
  m.arrivals.clear();
  CHECK(m.cancels.empty());
}
TEST_CASE("what was taken in counts until it is forgotten") {
  inbox box;
  request a;
  request b;
  CHECK(box.in_engine() == 0);
  CHECK(box.post_arrival(a));
  CHECK(box.post_arrival(b));
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(box.in_engine() == 2);
  m.arrivals.clear();
  box.forget(a, m);
  CHECK(box.in_engine() == 1);
  box.close();
  request late;
  CHECK_FALSE(box.post_arrival(late));
  CHECK(box.in_engine() == 1);
  box.forget(b, m);
  CHECK(box.in_engine() == 0);
}
TEST_CASE("a closed inbox takes no requests and leaves them alone") {
  inbox box;
  box.close();
  request r;
  CHECK_FALSE(box.post_arrival(r));
  CHECK(r.hold == engine_hold::none);
  CHECK_FALSE(r.hook.is_linked());
  CHECK(box.is_closed());
}
TEST_CASE("a sleeper is woken by a message") {
  inbox box;
  std::thread other{[&] { box.post_end({device_id{0}, false}); }};
  CHECK_FALSE(box.sleep_until(never));
  other.join();
}
TEST_CASE("a sleeper is woken for all that came quietly") {
  inbox box;
  std::array<request, 3> all;
  std::thread other{[&] {
    for (request& r : all) CHECK(box.post_arrival(r, false));
    box.wake_up();
  }};
  CHECK_FALSE(box.sleep_until(never));
  other.join();
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(m.arrivals.size() == 3);
  m.arrivals.clear();
}
TEST_CASE("who looks before it sleeps finds what came quietly") {
  inbox box;
  request r;
  CHECK(box.post_arrival(r, false));
  CHECK_FALSE(box.sleep_until(never));
  inbox::messages m;
  CHECK(box.take(m));
  m.arrivals.clear();
}
TEST_CASE("a sleeper whose time has come is told so") {
  inbox box;
  CHECK(box.sleep_until(time_point{}));
}
TEST_CASE("a loop that sleeps through arrivals is woken by all else, and by them when it ends") {
  using namespace std::chrono_literals;
  inbox box;
  request r;
  CHECK(box.post_arrival(r));
  const time_point now = steady_clock{}.now();
  std::atomic<bool> is_back = false;
  bool was_back = true;
  std::thread other{[&] {
    for (int i = 0; i < 1000 && !is_back; ++i) std::this_thread::yield();
    was_back = is_back;
    box.post_end({device_id{3}, false});
  }};
  box.doze(nothing_matters);
  CHECK_FALSE(box.sleep_until(never, now + 1h));
  is_back = true;
  other.join();
  CHECK_FALSE(was_back);  // The request that waited did not wake it.
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(m.ends.size() == 1);
  CHECK(&m.arrivals.front() == &r);
  m.ends.clear();
  m.arrivals.clear();
  r.hold = engine_hold::none;
  CHECK(box.post_arrival(r));
  box.wake_up();  // Of nobody: nobody sleeps.
  box.doze(nothing_matters);
  CHECK_FALSE(box.sleep_until(never, now));  // It is over already.
  CHECK(box.take(m));
  m.arrivals.clear();
  box.doze(nothing_matters);
  CHECK(box.sleep_until(now, now + 1h));  // Nothing came before its time.
}
TEST_CASE("each arrival is judged once, until one matters; those before were slept through") {
  inbox box;
  std::array<request, 5> all;
  for (std::uint32_t i = 0; i < 5; ++i) all[i].size = i;
  std::vector<std::uint32_t> judged;
  const auto third_matters = [&](const request& r) noexcept {
    judged.push_back(r.size);
    return r.size == 2;
  };
  CHECK(box.post_arrival(all[0], true, third_matters));  // It does not doze yet.
  CHECK(judged.empty());
  CHECK(box.has_to_wake());
  box.doze(third_matters);
  CHECK_FALSE(box.has_to_wake());
  CHECK(box.post_arrival(all[1], true, third_matters));
  CHECK_FALSE(box.has_to_wake());
  CHECK(box.post_arrival(all[2], true, third_matters));
  CHECK(box.has_to_wake());
  CHECK(box.post_arrival(all[3], true, third_matters));
  CHECK(judged == std::vector<std::uint32_t>{0, 1, 2});
  CHECK_FALSE(box.sleep_until(never, never));  // It is woken already,
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(m.arrivals.size() == 4);
  CHECK(m.slept_through == 2);
  m.arrivals.clear();
  // also where its time has come at once.
  CHECK(box.post_arrival(all[4]));
  box.doze([](const request&) noexcept { return true; });
  CHECK_FALSE(box.sleep_until(time_point{}, never));
  CHECK(box.take(m));
  CHECK(m.slept_through == 0);
  m.arrivals.clear();
}
TEST_CASE("one that was submitted quietly and matters wakes by wake_up") {
  inbox box;
  std::array<request, 2> all;
  box.doze(nothing_matters);
  CHECK(box.post_arrival(all[0], false, nothing_matters));
  box.wake_up();
  CHECK_FALSE(box.has_to_wake());
  std::thread other{[&] {
    CHECK(box.post_arrival(all[1], false, [](const request&) noexcept { return true; }));
    box.wake_up();
  }};
  CHECK_FALSE(box.sleep_until(never, never));
  other.join();
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(m.slept_through == 1);
  m.arrivals.clear();
}
TEST_CASE("who dozes and is roused is woken by any arrival") {
  inbox box;
  request r;
  box.doze(nothing_matters);
  box.rouse();
  CHECK(box.post_arrival(r, true, nothing_matters));
  CHECK(box.has_to_wake());
  inbox::messages m;
  CHECK(box.take(m));
  CHECK(m.slept_through == 0);
  m.arrivals.clear();
}
TEST_CASE("ends and cancellations that race: each cancellation is taken or forgotten") {
  inbox box;
  constexpr int rounds = 2000;
  request r;
  std::atomic<int> begun = 0;
  std::atomic<int> cancelled = 0;
  std::thread other{[&] {
    for (int i = 1; i <= rounds; ++i) {
      while (begun < i) std::this_thread::yield();
      box.post_cancel(r);
      cancelled = i;
    }
  }};
  inbox::messages m;
  int left = 0;
  for (int i = 1; i <= rounds; ++i) {
    box.post_arrival(r);
    box.take(m);
    m.arrivals.clear();
    begun = i;
    box.forget(r, m);  // While it is cancelled.
    while (cancelled < i) std::this_thread::yield();
    box.take(m);
    left += static_cast<int>(m.cancels.size()) + (r.hold != engine_hold::none ? 1 : 0);
    m.cancels.clear();
  }
  other.join();
  CHECK(left == 0);
  CHECK(box.in_engine() == 0);
}

}  // namespace
}  // namespace cohort::engine::inbox_test
