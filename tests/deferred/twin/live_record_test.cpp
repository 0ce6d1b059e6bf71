// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/twin/live_record.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <list>

namespace cohort::deferred {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr device_id d0{0};

struct sender {
  sender() { live.add_device(d0, 1); }
  void send(std::initializer_list<int> deadlines_ms) {
    batch b{.model = model_id{0},
            .device = d0,
            .entry = 0,
            .requests = {},
            .first_sequence = 1,
            .exec_at = t0,
            .latest = t0,
            .expected = 1ms};
    for (const int ms : deadlines_ms) {
      requests.emplace_back().deadline = t0 + 1ms * ms;
      b.requests.push_back(requests.back());
      live.arrived();
    }
    live.dispatched(b);
    b.requests.clear();
  }
  live_record live{2ms};
  std::list<request> requests;
};

TEST_CASE("late, dropped and failed requests are counted, to within a batch, worked by hand") {
  sender s;
  s.live.mark(t0, 10s);
  CHECK_FALSE(s.live.bad_since(t0).has_value());  // Nobody has arrived.
  s.send({10, 12, 14, 16});
  s.live.completed(d0, t0 + 8ms, false);  // Told 2 ms later: at the first deadline.
  CHECK(s.live.bad_since(t0) == 0);
  s.send({20, 22, 24, 26});
  s.live.completed(d0, t0 + 21ms, false);  // 3 of 6 ms over the first: half of them.
  CHECK(s.live.bad_since(t0) == 2.0 / 8);
  s.send({30, 32});
  s.live.completed(d0, t0 + 35ms, false);
  CHECK(s.live.bad_since(t0) == 4.0 / 10);
  s.send({50, 60});
  s.send({70});
  s.live.completed(d0, t0 + 40ms, true);
  s.live.completed(d0, t0 + 50ms, false);
  CHECK(s.live.bad_since(t0) == 6.0 / 13);
  s.live.arrived();
  s.live.dropped();
  CHECK(s.live.bad_since(t0) == 7.0 / 14);
}

TEST_CASE("since the last mark at or before an instant, as long as it is kept") {
  sender s;
  s.live.mark(t0, 1s);
  s.live.arrived();
  s.live.dropped();
  s.live.mark(t0 + 1s, 1s);
  s.live.arrived();
  CHECK(s.live.bad_since(t0) == 0.5);
  CHECK(s.live.bad_since(t0 + 999ms) == 0.5);
  CHECK(s.live.bad_since(t0 + 1s) == 0);
  CHECK_FALSE(s.live.bad_since(t0 - 1ns).has_value());
  s.live.mark(t0 + 4s, 1s);
  CHECK_FALSE(s.live.bad_since(t0 + 1s).has_value());
}

}  // namespace
}  // namespace cohort::deferred
