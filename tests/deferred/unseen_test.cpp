// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/foresight.hpp>

#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <doctest/doctest.h>

#include <array>
#include <chrono>

namespace cohort::deferred::unseen_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

static_assert(patient_scheduler<scheduler> && patient_scheduler<pooled_scheduler> &&
              patient_scheduler<tuned_scheduler>);

request& set(request& r, duration arrival, duration deadline, model_id m = {}) {
  r.model = m;
  r.arrival = t0 + arrival;
  r.deadline = t0 + deadline;
  return r;
}

TEST_CASE("of equal deadlines the first counts, of arrivals the latest") {
  std::array<request, 3> r;
  unseen_requests all;
  all.add(set(r[0], 2ms, 9ms));
  CHECK(all.first == &r[0]);
  all.add(set(r[1], 1ms, 8ms));
  CHECK(all.first == &r[1]);
  all.add(set(r[2], 3ms, 8ms));
  CHECK(all.first == &r[1]);
  CHECK(all.count == 3);
  CHECK(all.last == t0 + 3ms);
}

struct ignoring_sink {
  void dispatch(batch&& b) noexcept { b.requests.clear(); }
  void drop(request&) noexcept {}
};

TEST_CASE("pools say each for itself whether requests may wait") {
  // l(b) = b + 5 ms, SLO 12 ms: a window opens at 12 - l(2) = 5 ms.
  const model_config c{.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms};
  ignoring_sink sink;
  pooled_scheduler s;
  const model_id busy = s.add_model(c, pool_id{0});
  const model_id idle = s.add_model(c, pool_id{1});
  CHECK_FALSE(s.may_wait({.model = model_id{2}}, t0, t0));  // It is not there.
  s.add_device(t0, pool_id{0});
  s.add_device(t0, pool_id{1});
  CHECK_FALSE(s.is_scarce());
  CHECK(s.quiet_until(t0) == never);
  std::array<request, 4> r;
  s.on_arrival(set(r[0], 0ms, 12ms, busy), t0, sink);
  s.on_arrival(set(r[1], 0ms, 12ms, idle), t0, sink);
  s.advance(t0, sink);
  CHECK(s.quiet_until(t0) == t0 + 5ms);
  unseen_requests one{.model = idle};
  one.add(set(r[2], 1ms, 13ms, idle));
  CHECK(s.may_wait(one, t0 + 4ms, t0 + 4ms));  // Of two it opens at 12 - l(3).
  CHECK_FALSE(s.may_wait(one, t0 + 4ms + 1ns, distant_past));
  s.on_cancel(r[1], t0 + 1ms, sink);
  s.advance(t0 + 5ms, sink);  // Until 11 ms.
  CHECK(s.is_scarce());
  unseen_requests another{.model = busy};
  another.add(set(r[3], 6ms, 18ms, busy));
  CHECK(s.may_wait(another, t0 + 11ms, t0 + 11ms));  // Alone it opens at 18 - l(2).
  another.first = &set(r[3], 6ms, 16ms, busy);       // At 9 ms, and there is still no device.
  CHECK(s.may_wait(another, t0 + 11ms, t0 + 10ms));
  CHECK_FALSE(s.may_wait(another, t0 + 11ms + 1ns, t0 + 10ms));
  CHECK_FALSE(s.may_wait(another, t0 + 11ms, t0 + 10ms + 1ns));  // It would be dropped.
}

}  // namespace
}  // namespace cohort::deferred::unseen_test
