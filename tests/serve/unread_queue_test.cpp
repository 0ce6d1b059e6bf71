// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/unread_queue.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>

namespace cohort::serve::unread_queue_test {
namespace {

using namespace std::chrono_literals;
using queue = unread_queue<int>;

time_point at(duration d) { return time_point{} + d; }

/// Five that come at `from` and are taken 100 us apart, the first at once.
void measure_100us(queue& r, duration from) {
  for (int i = 0; i < 5; ++i) r.enter(i, {.limit = 1s}, at(from));
  for (int i = 0; i < 5; ++i) CHECK(r.take(at(from + i * 100us))->what == i);
  CHECK(r.empty());
}

TEST_CASE("the first of durations is the mean, later ones move it by a sixteenth") {
  recent_duration d;
  CHECK(d.mean() == 0ns);
  d.add(160us);
  CHECK(d.mean() == 160us);
  CHECK(d.most() == 160us);
  d.add(320us);  // 160 off: deviation 160 / 8 = 20; mean 160 + 160 / 16 = 170.
  CHECK(d.mean() == 170us);
  CHECK(d.most() == 250us);
}

TEST_CASE("patience is half of what the limit leaves, and never less than a quarter of it") {
  CHECK(time_budget{.limit = 8ms, .rest = 2ms}.patience() == 3ms);
  CHECK(time_budget{.limit = 8ms, .rest = 0ms}.patience() == 4ms);
  CHECK(time_budget{.limit = 8ms, .rest = 100ms}.patience() == 2ms);
}

TEST_CASE(
    "a window is without limit until one was taken in vain, and keeps a tenth of those in it") {
  serving_window w;
  CHECK(w.has_room(1'000'000));
  w.completed(1'000'000, 1);
  w.wasted(20, 2);  // 18.
  CHECK(w.has_room(17));
  CHECK_FALSE(w.has_room(18));
  w.completed(8, 1000);  // It was not full.
  CHECK_FALSE(w.has_room(18));
  for (int i = 0; i < 12; ++i) w.completed(18, 1);  // 19.2.
  CHECK(w.has_room(19));
  CHECK_FALSE(w.has_room(20));
  w.wasted(100, 1);  // 18.2.
  CHECK_FALSE(w.has_room(19));
  w.wasted(0, 1000);
  CHECK(w.has_room(0));  // Never none.
  CHECK_FALSE(w.has_room(1));
}

TEST_CASE("who is late takes a tenth of a window away, once a round") {
  serving_window w;
  w.late(20, at(0s), 5ms);  // 18.
  CHECK(w.has_room(17));
  CHECK_FALSE(w.has_room(18));
  w.late(10, at(4ms), 5ms);  // Of the same round.
  CHECK(w.has_room(17));
  w.late(10, at(5ms), 5ms);
  CHECK(w.has_room(8));
  CHECK_FALSE(w.has_room(9));
}

TEST_CASE("requests leave in the order in which they came") {
  queue r;
  CHECK_FALSE(r.take(at(0ms)));
  r.enter(1, {.limit = 1s}, at(0ms));
  r.enter(2, {.limit = 1s}, at(1ms));
  CHECK(r.size() == 2);
  const auto first = r.take(at(2ms));
  CHECK(first->what == 1);
  CHECK(first->arrival == at(0ms));
  CHECK_FALSE(first->is_late);
  CHECK(r.take(at(2ms))->what == 2);
  CHECK(r.empty());
}

TEST_CASE("the wait is that of those who are there, at the pace at which they are taken") {
  queue r;
  measure_100us(r, 0ms);
  CHECK(r.expected_wait() == 0us);
  r.enter(0, {.limit = 1ms}, at(1s));
  CHECK(r.expected_wait() == 100us);
  r.enter(1, {.limit = 1ms}, at(1s));
  CHECK(r.expected_wait() == 200us);
  // Of 1 ms 0.6 are for the rest, so 0.2 for the wait: full. Of 1 ms and 0.5, 0.25.
  CHECK(r.admits({.limit = 1ms, .rest = 400us}));
  r.enter(2, {.limit = 1ms}, at(1s));
  CHECK_FALSE(r.admits({.limit = 1ms, .rest = 500us}));
  CHECK(r.admits({.limit = 1ms, .rest = 400us}));
}

TEST_CASE("gaps without work are none, and gaps with other work count as they are") {
  queue r;
  measure_100us(r, 0ms);
  measure_100us(r, 10s);  // The ten seconds were idle.
  r.enter(0, {.limit = 1s}, at(20s));
  CHECK(r.expected_wait() == 100us);
  r.enter(1, {.limit = 1s}, at(20s));
  (void)r.take(at(20s));
  (void)r.take(at(20s + 1700us));  // The thread was away: 100 + 1600 / 16 us.
  r.enter(0, {.limit = 1s}, at(21s));
  CHECK(r.expected_wait() == 200us);
}

TEST_CASE("whoever is alone is admitted, however bad the times were") {
  queue r;
  for (int i = 0; i < 2; ++i) r.enter(i, {.limit = 100s}, at(0s));
  (void)r.take(at(0s));
  (void)r.take(at(10s));
  const time_budget short_one{.limit = 1ms, .rest = 1s};
  CHECK(r.admits(short_one));
  r.enter(0, short_one, at(20s));
  CHECK_FALSE(r.admits(short_one));
  CHECK_FALSE(r.take(at(20s))->is_late);
}

TEST_CASE("who has waited so long that the rest would be late is late, and not measured") {
  queue r;
  measure_100us(r, 0ms);
  const time_budget b{.limit = 10ms, .rest = 3ms};  // It may wait 7 ms.
  for (int i = 0; i < 4; ++i) r.enter(i, b, at(1s));
  CHECK_FALSE(r.take(at(1s))->is_late);
  CHECK_FALSE(r.take(at(1s + 100us))->is_late);
  CHECK(r.take(at(1s + 7001us))->is_late);
  CHECK(r.take(at(1s + 7002us))->is_late);
  r.enter(0, b, at(2s));
  CHECK(r.expected_wait() == 100us);
}

TEST_CASE("a request may be one that only moves") {
  unread_queue<std::unique_ptr<int>> r;
  r.enter(std::make_unique<int>(7), {.limit = 1s}, at(0s));
  CHECK(*r.take(at(0s))->what == 7);
}

}  // namespace
}  // namespace cohort::serve::unread_queue_test
