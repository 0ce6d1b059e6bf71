// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/foresight.hpp>

#include <cohort/deferred/adaptive.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <deque>

namespace cohort::deferred::foresight_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

/// l(b) = b + 5 ms up to 16, SLO 20 ms; the rate is measured anew at 10 ms.
struct fixture {
  explicit fixture(network_delays d = {}, duration longest_wait = unbounded)
      : delays{d},
        state{{.latency = latency_curve{linear_latency{5ms, 1ms}, 16},
               .slo = 20ms,
               .rate_window = 160ms,
               .longest_wait = longest_wait},
              1,
              d} {
    state.rate.add(t0);
  }
  void push(duration arrival, duration deadline) {
    request& r = requests.emplace_back();
    r.arrival = t0 + arrival;
    r.deadline = t0 + deadline;
    state.queue.push(r, r.deadline - delays.after());
  }
  unseen_requests unseen(duration arrival, duration deadline) {
    request& r = requests.emplace_back();
    r.arrival = t0 + arrival;
    r.deadline = t0 + deadline;
    unseen_requests u;
    u.add(r);
    return u;
  }
  template <class Window = frontrun, class Gather = drop_head>
  foresight<Window, Gather> ask(const Window& w = {}) const {
    return {state, w, delays, delays.wake_margin, 0};
  }

  network_delays delays;
  std::deque<request> requests;
  model_state state;
};

TEST_CASE("the window of those who wait, and of some more") {
  fixture f;
  f.push(0ms, 20ms);
  const foreseen one = f.ask().with({});
  CHECK(one.send_at == t0 + 13ms);  // 20 - l(2).
  CHECK(one.send_by == t0 + 14ms);
  CHECK(one.lead == 0ms);
  const foreseen two = f.ask().with(f.unseen(1ms, 21ms));
  CHECK(two.send_at == t0 + 12ms);
  CHECK(two.send_by == t0 + 13ms);
  CHECK(f.ask().with(f.unseen(1ms, 19ms)).send_at == t0 + 11ms);  // It is first now.
  CHECK(f.ask<timeout>(timeout{.25}).with(f.unseen(1ms, 21ms)).send_at == t0 + 5ms);
  CHECK(f.ask<timeout>(timeout{.25}).with(f.unseen(1ms, 19ms)).send_at == t0 + 6ms);
  CHECK(f.ask<eager>().with({}).send_at == distant_past);
}
TEST_CASE("of a queue that is empty those who come are first") {
  fixture f;
  CHECK(f.ask().with(f.unseen(1ms, 21ms)).send_at == t0 + 14ms);
}
TEST_CASE("a batch that cannot grow may start at once, as do those beyond it") {
  fixture f;
  for (int i = 0; i < 14; ++i) f.push(0ms, 40ms);
  CHECK(f.ask().with(f.unseen(1ms, 41ms)).send_at == t0 + 19ms);  // 40 - l(16).
  f.push(1ms, 41ms);
  CHECK(f.ask().with(f.unseen(1ms, 41ms)).send_at < t0);
  CHECK(f.ask<timeout>(timeout{.25}).with(f.unseen(1ms, 41ms)).send_at == t0 + 5ms);
  f.push(1ms, 41ms);
  CHECK(f.ask<timeout>(timeout{.25}).with(f.unseen(1ms, 41ms)).send_at == t0 + 5ms);
}
TEST_CASE("delays, and a longest wait") {
  fixture f{{.control = 1ms, .data_per_request = 100us, .response = 500us, .wake_margin = 200us}};
  f.push(0ms, 20ms);
  // Deadlines are 0.7 ms shorter: 19.3 - l(3) less the 1.4 ms before the start of a batch of two.
  const foreseen two = f.ask().with(f.unseen(1ms, 21ms));
  CHECK(two.send_at == t0 + 9900us);
  CHECK(two.send_by == t0 + 11100us);  // 19.3 - l(2) - 1.2.
  CHECK(two.lead == 1400us);
  fixture g{{}, 3ms};
  g.push(0ms, 20ms);
  CHECK(g.ask().with(g.unseen(1ms, 21ms)).send_at == t0 + 3ms);
  CHECK(g.ask().with(g.unseen(1ms, 19ms)).send_at == t0 + 4ms);
}

struct of_ones_own : head {};

TEST_CASE("what is not known counts as open") {
  fixture f;
  f.push(0ms, 20ms);
  CHECK(f.ask<frontrun, of_ones_own>().with({}).send_at == distant_past);
  CHECK(f.ask().with(f.unseen(10ms - 1ns, 30ms)).send_at == t0 + 12ms);
  CHECK(f.ask().with(f.unseen(10ms, 30ms)).send_at == distant_past);  // The rate will be another.
}
TEST_CASE("a window that follows the pool is to be looked at before it opens late") {
  fixture f;
  f.state.load.pool.devices = 1;
  const adaptive_window w;
  CHECK(f.ask(w).with(f.unseen(0ms, 250ms)).send_at > t0);
  CHECK(f.ask(w).with(f.unseen(0ms, 300ms)).send_at == distant_past);
  f.push(0ms, 300ms);  // It will be.
  CHECK(f.ask(w).with(f.unseen(0ms, 300ms)).send_at > t0 + 250ms);
}
TEST_CASE("when a window opens by the rate of arrivals") {
  fixture f;
  f.push(0ms, 20ms);
  f.state.published = {.size = 1, .exec_at = t0 + 13ms, .latest = t0 + 14ms, .urgency = {}};
  CHECK(f.ask().opening_by_rate(t0) == t0 + 13ms);  // No rate is known.
  // One each millisecond: with k more it opens at 13 - k ms, the one after them comes at k + 1.
  f.state.load.rate = 1000;
  CHECK(f.ask().opening_by_rate(t0) == t0 + 7ms);
  CHECK(f.ask().opening_by_rate(t0 + 6ms) == t0 + 10ms);  // 13 - 3 = 6 + 4.
  f.state.load.rate = 50;
  CHECK(f.ask().opening_by_rate(t0) == t0 + 13ms);
  f.state.load.rate = 1e6;  // 13 - 12 ms is after 13 us, 13 - 13 ms not after 14 us.
  CHECK(f.ask().opening_by_rate(t0) == t0 + 1ms);
}

}  // namespace
}  // namespace cohort::deferred::foresight_test
