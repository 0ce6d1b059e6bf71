// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/batch_scheduler.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <support/one_by_one.hpp>

namespace cohort::deferred::batch_scheduler_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

static_assert(batch_scheduler<adaptive_scheduler>);
static_assert(batch_scheduler<basic_scheduler<eager, head>>);
static_assert(batch_scheduler<basic_pooled_scheduler<eager, head>>);
static_assert(!batch_scheduler<rank> && !batch_scheduler<basic_model_shard<>>);

struct cannot_move : test::one_by_one {
  cannot_move(cannot_move&&) = delete;
};
static_assert(!batch_scheduler<cannot_move>);  // A core takes it by value.

struct silent {
  void dispatch(batch&& b) noexcept { b.requests.clear(); }
  void drop(request&) noexcept {}
};
/// The semantics that drivers rely on, of every scheduler with a model and a device.
template <batch_scheduler Scheduler>
void check_life(Scheduler s) {
  silent sink;
  const model_id id =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms});
  const device_id d = s.add_device(t0);
  CHECK(id == model_id{0});
  CHECK(d == device_id{0});
  CHECK(s.next_wake() == never);
  CHECK(s.models().least_time(id) == 6ms);
  CHECK_FALSE(s.models().is_full(id));
  CHECK(s.models().is_feasible(id, t0 + 6ms, t0));
  CHECK_FALSE(s.models().is_feasible(id, t0 + 6ms, t0 + 1ns));

  request r;
  r.model = id;
  r.arrival = t0;
  r.deadline = t0 + 12ms;
  s.on_arrival(r, t0, sink);
  CHECK(s.on_cancel(r, t0, sink));
  CHECK(r.state == request_state::idle);
  s.on_arrival(r, t0, sink);
  s.advance(t0, sink);
  while (r.state == request_state::queued && s.next_wake() != never) {
    s.advance(s.next_wake(), sink);
  }
  CHECK(r.state == request_state::running);
  CHECK_FALSE(s.on_cancel(r, t0 + 6ms, sink));
  s.on_complete(d, t0 + 12ms);
  s.remove_model(id, t0 + 12ms, sink);
  s.remove_device(d, t0 + 12ms);
}
TEST_CASE("every scheduler keeps what the concept says") {
  check_life(scheduler{});
  check_life(pooled_scheduler{});
  check_life(basic_scheduler<eager, head>{});
  check_life(make_adaptive_scheduler());
  check_life(test::one_by_one{});
}

}  // namespace
}  // namespace cohort::deferred::batch_scheduler_test
