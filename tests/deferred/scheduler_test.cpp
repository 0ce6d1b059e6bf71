// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/scheduler.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <cohort/deferred/adaptive.hpp>
#include <support/owned_requests.hpp>
#include <support/random_source.hpp>
#include <support/scheduler_suite.hpp>

namespace cohort::deferred::scheduler_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using test::check_random_operations;
using test::driver;

/// The example of the paper's section 3.3.
template <class Scheduler>
std::vector<std::uint64_t> example(
    const std::set<int>& missing, int requests,
    std::vector<std::tuple<time_point, std::uint32_t, std::uint32_t, std::uint64_t>>* sent =
        nullptr) {
  driver<Scheduler> d{Scheduler{}};
  d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 12ms});
  for (int i = 0; i < 3; ++i) d.scheduler.add_device(t0);
  for (int i = 1; i <= requests; ++i) {
    const time_point at = t0 + 750us * (i - 1);
    d.run_until(at - 1ns);
    d.now = at;
    if (!missing.contains(i)) {
      request& x = d.add();
      x.id = request_id{static_cast<std::uint64_t>(i)};
      x.arrival = at;
      x.deadline = at + 12ms;
      d.scheduler.on_arrival(x, at, d);
    }
    while (d.next_end().first <= at) d.finish_first(d.next_end().second);
    d.scheduler.advance(at, d);
  }
  std::vector<std::uint64_t> names;  // Sequence numbers skip the missing ones; these do not.
  for (const auto& [id, how] : d.fate) {
    if (how == 'd') names.push_back(id);
  }
  if (sent != nullptr) *sent = d.sent;
  CHECK_FALSE(d.twice);
  return names;
}

using deferred_head = basic_scheduler<frontrun, head>;
using eager_head = basic_scheduler<eager, head>;

TEST_CASE("the paper's example forms a staggered execution of batches of four") {
  std::vector<std::tuple<time_point, std::uint32_t, std::uint32_t, std::uint64_t>> sent;
  CHECK(example<deferred_head>({}, 48, &sent).empty());
  REQUIRE(sent.size() >= 10);
  for (std::size_t i = 0; i < 10; ++i) {
    const auto [at, device, size, first] = sent[i];
    CHECK(at == t0 + 2250us + 3ms * static_cast<int>(i));
    CHECK(device == i % 3);
    CHECK(size == 4);
    CHECK(first == 4 * i + 1);
  }
}
TEST_CASE("after three missing requests deferred scheduling recovers and eager does not") {
  CHECK(example<deferred_head>({13, 14, 15}, 70).empty());
  std::vector<std::uint64_t> given_up = example<eager_head>({13, 14, 15}, 70);
  std::erase_if(given_up, [](std::uint64_t i) { return i > 48; });
  CHECK(given_up == std::vector<std::uint64_t>{37, 38, 39, 40, 42, 45, 46, 47, 48});
}

TEST_CASE("each request runs, is dropped or is cancelled, once and in time: deferred") {
  check_random_operations<scheduler>({});
}
TEST_CASE("each request runs, is dropped or is cancelled, once and in time: eager") {
  check_random_operations<eager_head>({});
}
TEST_CASE("each request runs, is dropped or is cancelled, once and in time: adaptive") {
  check_random_operations<adaptive_scheduler>({});
}
TEST_CASE("each request runs, is dropped or is cancelled, once and in time: with delays") {
  const network_delays delays{
      .control = 200us, .data_per_request = 50us, .response = 300us, .wake_margin = 100us};
  check_random_operations<scheduler>(delays);
  check_random_operations<adaptive_scheduler>(delays);
}
/// Two shards and a rank joined by mailboxes with random delays, as threads would join them: of a
/// model's candidates the newest wins, grants and answers arrive late and in any order.
struct slow_join {
  explicit slow_join(std::uint64_t seed) : random{seed}, shards(2) {}

  struct message {
    time_point at;
    std::uint64_t order;
    std::function<void()> act;
    friend bool operator<(const message& a, const message& b) {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };
  void post(std::function<void()> act) {
    mail.push({now + 1us * random.below(400), ++posted, std::move(act)});
  }

  // The rank's sink.
  void grant(const deferred::grant& g) noexcept {
    post([this, g] { shards[g.model.value() % 2].on_grant(g, now, *this); });
  }
  void waits(model_id) noexcept {}
  // The shards' sink.
  [[nodiscard]] pool_view pool(model_id) const noexcept { return {}; }
  void candidate_changed(model_id m, const candidate& c) noexcept {
    const std::uint64_t version = ++versions[m.value()];
    post([this, m, c, version] {
      if (version < seen[m.value()]) return;
      seen[m.value()] = version;
      ranking.on_candidate(m, c, now);
    });
  }
  void dispatch(batch&& b) noexcept {
    while (!b.requests.empty()) {
      request& r = b.requests.front();
      b.requests.pop_front();
      end(r);
    }
  }
  void grant_used(model_id m, device_id d, time_point start, duration expected) noexcept {
    post([this, m, d, start, expected] {
      REQUIRE(ranking.outstanding(d) < rank::entry_depth);
      ranking.on_grant_used(m, d, start, expected, now);
      mail.push(
          {std::max(now, start) + expected, ++posted, [this, d] { ranking.on_complete(d, now); }});
    });
  }
  void grant_returned(model_id m, device_id d) noexcept {
    post([this, m, d] { ranking.on_grant_returned(m, d, now); });
  }
  void drop(request& r) noexcept { end(r); }
  void end(request& r) noexcept {
    ++ends[r.id.value()];
    requests.end(r);
  }

  /// Lets time pass to the next thing to do. @returns False if there is none.
  bool step(time_point limit) {
    time_point next = std::min(mail.empty() ? never : mail.top().at, ranking.next_wake());
    for (auto& shard : shards) next = std::min(next, shard.next_wake());
    if (next >= limit) return false;
    now = std::max(now, next);
    while (!mail.empty() && mail.top().at <= now) {
      const auto act = mail.top().act;
      mail.pop();
      act();
    }
    for (auto& shard : shards) shard.advance(now, *this);
    ranking.advance(now, *this);
    return true;
  }

  test::owned_requests<> requests;
  test::random_source random;
  std::vector<basic_model_shard<>> shards;
  rank ranking;
  std::priority_queue<message> mail;
  std::map<std::uint32_t, std::uint64_t> versions;
  std::map<std::uint32_t, std::uint64_t> seen;
  std::map<std::uint64_t, int> ends;  // By id.
  std::uint64_t posted = 0;
  time_point now = t0;
};

TEST_CASE("shards and a rank joined by slow mailboxes end every request exactly once") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    slow_join join{seed};
    join.ranking.reserve_models(4);
    for (std::uint32_t m = 0; m < 4; ++m) {
      join.shards[m % 2].add_model(
          model_id{m}, {.latency = latency_curve{linear_latency{3ms, 500us}, 8}, .slo = 20ms});
    }
    for (std::uint32_t d = 0; d < 3; ++d) join.ranking.add_device(device_id{d}, t0);
    time_point at = t0;
    for (std::uint64_t i = 0; i < 1500; ++i) {
      at += 1us * join.random.below(800);
      int steps = 0;
      while (join.step(at)) REQUIRE(++steps < 1000);  // No livelock.
      join.now = at;
      request& r = join.requests.add();
      r.id = request_id{i};
      r.model = model_id{join.random.below(4U)};
      r.arrival = at;
      r.deadline = at + 20ms;
      join.shards[r.model.value() % 2].on_arrival(r, at, join);
    }
    int steps = 0;
    while (join.step(never)) REQUIRE(++steps < 100000);
    for (std::uint64_t i = 0; i < 1500; ++i) REQUIRE(join.ends[i] == 1);
    REQUIRE(join.requests.live().empty());
    REQUIRE(join.ranking.idle_devices() == 3);
  }
}
TEST_CASE("a driver that wakes up late by no more than its margin misses no window") {
  // The window of a batch of one is 100 us wide: 15 - 5.2 to 15 - 5.1 ms, less 1 ms after the end.
  for (const duration late : {0us, 500us, 1000us, 1101us}) {
    CAPTURE(late.count());
    const network_delays delays{.wake_margin = 1ms};
    driver<scheduler> d{scheduler{delays}};
    request& r = d.add();
    d.delays = delays;
    d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 100us}, 16}, .slo = 15ms});
    d.scheduler.add_device(t0);
    r.arrival = t0;
    r.deadline = t0 + 15ms;
    d.scheduler.on_arrival(r, t0, d);
    d.scheduler.advance(t0, d);
    CHECK(d.scheduler.next_wake() == t0 + 7800us);  // 14 - 5.2 - 1.
    d.now = t0 + 7800us + late;
    d.scheduler.advance(d.now, d);
    CHECK(d.sent.size() == (late <= 1100us ? 1 : 0));  // At 8.9 ms it still ends at 14.
    CHECK_FALSE(d.late);
  }
}
TEST_CASE("of a model that is removed no timer is left, whatever the window") {
  driver<adaptive_scheduler> d{make_adaptive_scheduler()};
  request& r = d.add();
  const model_id m =
      d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 40ms});
  r.arrival = t0;
  r.deadline = t0 + 40ms;
  d.scheduler.on_arrival(r, t0, d);
  d.scheduler.remove_model(m, t0, d);
  CHECK(d.dropped.size() == 1);
  CHECK(d.scheduler.next_wake() == never);
  d.scheduler.advance(t0 + 1s, d);
}
TEST_CASE("devices get the smallest id that is neither present nor at work") {
  driver<scheduler> d{scheduler{}};
  request& r = d.add();
  for (std::uint32_t i = 0; i < 4; ++i) CHECK(d.scheduler.add_device(t0) == device_id{i});
  d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 1}, .slo = 12ms});
  r.deadline = t0 + 12ms;
  d.scheduler.on_arrival(r, t0, d);
  d.scheduler.advance(t0, d);
  REQUIRE(d.running[0].size() == 1);
  d.scheduler.remove_device(device_id{0}, t0);
  d.scheduler.remove_device(device_id{2}, t0);
  CHECK(d.scheduler.add_device(t0) == device_id{2});  // 0 is still at work.
  CHECK(d.scheduler.add_device(t0) == device_id{4});
  d.now = t0 + 6ms;
  d.finish_first(0);
  CHECK(d.scheduler.add_device(d.now) == device_id{0});
  CHECK(d.scheduler.add_device(d.now) == device_id{5});
}
TEST_CASE("a removed model's id is given out again") {
  driver<scheduler> d{scheduler{}};
  const model_config c{.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 12ms};
  const model_id a = d.scheduler.add_model(c);
  const model_id b = d.scheduler.add_model(c);
  CHECK(a != b);
  d.scheduler.remove_model(a, t0, d);
  CHECK(d.scheduler.add_model(c) == a);
}
}  // namespace
}  // namespace cohort::deferred::scheduler_test
