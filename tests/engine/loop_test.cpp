// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/loop.hpp>

#include <cohort/engine/backend.hpp>
#include <cohort/engine/plan_router.hpp>

#include <doctest/doctest.h>

#include <deque>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "loop_fixture.hpp"

namespace cohort::engine::loop_test {
namespace {
using namespace std::chrono_literals;
using test_support::loop_fixture;
constexpr time_point t0{};
using end = std::pair<request*, outcome>;

struct least_backend {
  void launch(const deferred::batch&) noexcept {}
};
struct may_throw {
  void launch(const deferred::batch&) {}
};
static_assert(backend<least_backend> && backend<may_throw>);
static_assert(!driven_backend<least_backend> && !cancelling_backend<least_backend>);
static_assert(engine_sink<loop_fixture::loop_type> && completion_target<loop_fixture::loop_type>);
static_assert(completion_target<loop_fixture::loop_type>);
static_assert(request_acceptor<loop_fixture::loop_type, time_point>);

TEST_CASE("requests run in virtual time exactly as profiled") {
  loop_fixture f;
  std::deque<request> r(3);
  CHECK_FALSE(f.submit(r[0]));
  f.run_until(t0 + 1ms);
  CHECK_FALSE(f.submit(r[1]));
  CHECK_FALSE(f.submit(r[2]));
  f.run_until(t0 + 6ms - 1ns);
  CHECK(f.ends.empty());
  f.run_until(t0 + 6ms);
  CHECK(f.ends == std::vector<end>{{&r[0], outcome::completed}});
  f.run_until(t0 + 13ms);  // At 6 both start: l(2) = 7, and their deadline is 13.
  CHECK(f.ends.size() == 3);
  CHECK(f.ends.back().second == outcome::completed);
  CHECK(f.loop.turn(f.now) == never);
}
/// Throws at every other batch, and ends the others at once.
struct throwing_backend {
  void launch(const deferred::batch& b) {
    if (++launched % 2 == 1) throw std::runtime_error{"out of memory"};
    complete(b.at());
  }
  std::function<void(device_entry)> complete;
  int launched = 0;
};

TEST_CASE("a batch whose launch throws has failed, and the loop goes on") {
  std::vector<end> ends;
  throwing_backend backend;
  basic_loop loop{basic_engine_core<loop_fixture::scheduler>{}, backend,
                  inline_completion<loop_fixture::handler>{{&ends}}};
  backend.complete = [&](device_entry at) { loop.complete(at, false); };
  loop.add_device(t0);
  const auto add = [&](bool is_repeatable) {
    return loop.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 1s},
         .is_repeatable = is_repeatable});
  };
  const model_id once = add(false);
  const model_id again = add(true);
  std::deque<request> r(2);
  for (std::size_t i = 0; i < 2; ++i) {
    r[i].model = i == 0 ? once : again;
    r[i].deadline = t0 + 1s;
    backend.launched = 0;
    CHECK_FALSE(loop.submit(r[i], t0));
    for (int turns = 0; turns < 4; ++turns) loop.turn(t0);
  }
  CHECK(ends == std::vector<end>{{&r[0], outcome::failed}, {&r[1], outcome::completed}});
  CHECK(r[1].attempts == 1);
  CHECK(loop.core().stray_ends() == 0);
  CHECK(loop.core().in_flight() == 0);
}
/// Keeps the names of what was launched, for the test to end. Throws at the second.
struct second_throws {
  static constexpr bool queues_batches = true;
  void launch(const deferred::batch& b) {
    launched.push_back(b.at());
    if (launched.size() != 2) return;
    before_it_throws();
    throw std::runtime_error{"out of memory"};
  }
  std::vector<batch_ticket> launched;
  std::function<void()> before_it_throws = [] {};
};
/// One device, whose first batch runs from 0 to 6 ms, and whose second is sent 2 ms before its end.
struct sent_ahead_fixture {
  using scheduler = loop_fixture::scheduler;
  basic_loop<basic_engine_core<scheduler>, second_throws, inline_completion<loop_fixture::handler>>
      loop;
  model_id model;

  sent_ahead_fixture(std::vector<end>& ends, second_throws& backend, bool is_repeatable)
      : loop{basic_engine_core<scheduler>{scheduler{{.wake_margin = 2ms}}}, backend,
             inline_completion<loop_fixture::handler>{{&ends}}} {
    loop.add_device(t0);
    model = loop.add_model(
        {.scheduling = {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 1s},
         .is_repeatable = is_repeatable});
  }
  void post(request& r, time_point now) {
    r.model = model;
    r.arrival = now;
    r.deadline = now + 1s;
    REQUIRE_FALSE(loop.submit(r, now));
  }
  void submit(request& r, time_point now) {
    post(r, now);
    loop.turn(now);
  }
};

TEST_CASE("a batch that is sent ahead and throws is the one that fails; the running one goes on") {
  std::vector<end> ends;
  second_throws backend;
  sent_ahead_fixture f{ends, backend, false};
  std::deque<request> r(3);
  f.submit(r[0], t0);
  f.loop.turn(t0 + 2ms);
  REQUIRE(backend.launched.size() == 1);
  f.submit(r[1], t0 + 5ms);
  f.loop.turn(t0 + 6ms);
  REQUIRE(backend.launched.size() == 2);
  CHECK(ends == std::vector<end>{{&r[1], outcome::failed}});
  f.loop.complete(backend.launched[0], false);
  f.loop.turn(t0 + 7ms);
  CHECK(ends == std::vector<end>{{&r[1], outcome::failed}, {&r[0], outcome::completed}});
  CHECK(f.loop.core().outstanding(device_id{0}) == 0);
  // The entry takes the next.
  f.submit(r[2], t0 + 8ms);
  f.loop.turn(t0 + 10ms);
  REQUIRE(backend.launched.size() == 3);
  f.loop.complete(backend.launched[2], false);
  f.loop.turn(t0 + 16ms);
  CHECK(ends.back() == end{&r[2], outcome::completed});
  CHECK(f.loop.core().stray_ends() == 0);
  CHECK(f.loop.core().in_flight() == 0);
}
TEST_CASE("who is at work ends with its own end, told before that of the one that threw or after") {
  for (const bool is_first : {true, false}) {
    for (const bool is_repeatable : {true, false}) {
      std::vector<end> ends;
      second_throws backend;
      sent_ahead_fixture f{ends, backend, is_repeatable};
      std::deque<request> r(2);
      const auto end_first = [&] { f.loop.complete(backend.launched[0], false); };
      if (is_first) backend.before_it_throws = end_first;
      f.submit(r[0], t0);
      f.loop.turn(t0 + 2ms);
      REQUIRE(backend.launched.size() == 1);
      f.submit(r[1], t0 + 5ms);
      REQUIRE(backend.launched.size() == 2);
      if (!is_first) end_first();
      f.loop.turn(t0 + 6ms);
      if (is_repeatable) {
        f.loop.turn(t0 + 8ms);
        REQUIRE(backend.launched.size() == 3);
        f.loop.complete(backend.launched[2], false);
        f.loop.turn(t0 + 14ms);
      }
      const end first{&r[0], outcome::completed};
      const end second{&r[1], is_repeatable ? outcome::completed : outcome::failed};
      const bool is_in_order = is_first || is_repeatable;
      CHECK(ends ==
            (is_in_order ? std::vector<end>{first, second} : std::vector<end>{second, first}));
      CHECK(r[1].attempts == (is_repeatable ? 1 : 0));
      CHECK(f.loop.core().stray_ends() == 0);
      CHECK(f.loop.core().in_flight() == 0);
      CHECK(f.loop.core().outstanding(device_id{0}) == 0);
    }
  }
}
TEST_CASE("an end that is told twice leaves the batch alone that was sent ahead") {
  std::vector<end> ends;
  second_throws backend;
  backend.launched.resize(2);  // None throws.
  sent_ahead_fixture f{ends, backend, false};
  std::deque<request> r(2);
  f.submit(r[0], t0);
  f.loop.turn(t0 + 2ms);
  f.submit(r[1], t0 + 5ms);
  f.loop.turn(t0 + 6ms);
  REQUIRE(backend.launched.size() == 4);
  f.loop.complete(backend.launched[2], false);
  f.loop.complete(backend.launched[2], false);
  f.loop.turn(t0 + 7ms);
  CHECK(ends == std::vector<end>{{&r[0], outcome::completed}});
  CHECK(f.loop.core().stray_ends() == 1);
  f.loop.complete(backend.launched[2], true);  // Nor does it later.
  f.loop.turn(t0 + 8ms);
  CHECK(f.loop.core().stray_ends() == 2);
  CHECK(f.loop.core().outstanding(device_id{0}) == 1);
  f.loop.complete(backend.launched[3], false);
  f.loop.turn(t0 + 13ms);
  CHECK(ends.back() == end{&r[1], outcome::completed});
  CHECK(f.loop.core().in_flight() == 0);
}
TEST_CASE("refusals are immediate and typed, and count waiting requests") {
  loop_fixture f{2};
  std::deque<request> r(6);
  CHECK(f.submit(r[0], 6ms - 1ns) == refusal::deadline_infeasible);
  r[1].size = 11;
  CHECK(f.submit(r[1]) == refusal::too_big);
  CHECK_FALSE(f.submit(r[2]));
  CHECK_FALSE(f.submit(r[3]));
  CHECK(f.submit(r[4]) == refusal::queue_full);  // The loop has not even turned.
  CHECK(f.loop.waiting(f.model) == 2);
  f.run_until(t0);
  CHECK(f.loop.waiting(f.model) == 0);
  r[5].model = model_id{77777};
  CHECK(f.loop.submit(r[5], f.now) == refusal::unknown_model);
  f.loop.drain();
  CHECK(f.submit(r[4]) == refusal::draining);
  CHECK_FALSE(f.loop.is_finished());
  f.run_until(t0 + 1s);
  CHECK(f.loop.is_finished());
}
TEST_CASE("the loop knows how long after their arrival it sees requests") {
  loop_fixture f;
  std::deque<request> r(2);
  CHECK(f.loop.arrival_delay() == 0ms);
  CHECK_FALSE(f.submit(r[0], 20ms));
  f.now = t0 + 1ms;
  f.loop.turn(f.now);
  CHECK(f.loop.arrival_delay() == 1ms);
  CHECK_FALSE(f.submit(r[1], 20ms));
  f.now = t0 + 4ms;
  f.loop.turn(f.now);
  CHECK(f.loop.arrival_delay() == 2ms);  // On average.
  f.run_until(t0 + 1s);
}
TEST_CASE("while no device is free arrivals matter when one is, or when they would be dropped") {
  loop_fixture f;
  std::deque<request> r(3);
  CHECK_FALSE(f.submit(r[0], 20ms));
  f.loop.turn(f.now);  // It runs until 6 ms.
  CHECK(f.loop.doze_until(t0, t0 + 6ms) == t0 + 6ms);
  // Who was left waiting is served as if it had been seen, and its wait is none of the way here.
  f.now = t0 + 1ms;
  CHECK_FALSE(f.submit(r[1]));  // With its deadline at 13 ms it may start until 7.
  CHECK_FALSE(f.loop.mail().has_to_wake());
  f.now = t0 + 2ms;
  CHECK_FALSE(f.submit(r[2], 10ms));  // The batch of both, until 12 - l(2) = 5.
  CHECK(f.loop.mail().has_to_wake());
  f.loop.mail().rouse();
  f.loop.turn(f.now);
  CHECK(f.loop.arrival_delay() == 0ms);
  // So the loop has to look again soon.
  CHECK(f.loop.doze_until(t0 + 2ms, t0 + 6ms) == t0 + 3ms);
  f.loop.mail().rouse();
  f.run_until(t0 + 20ms);
  CHECK(f.ends.size() == 3);
  CHECK(f.ends.front() == end{&r[0], outcome::completed});
}
TEST_CASE("who is to be handed back as no device is in service wakes the loop at once") {
  for (const bool hands_back : {false, true}) {
    std::vector<end> ends;
    profile_backend backend;
    using scheduler = loop_fixture::scheduler;
    basic_loop<basic_engine_core<scheduler>, profile_backend,
               inline_completion<loop_fixture::handler>>
        loop{basic_engine_core<scheduler>{scheduler{}, 0s, {}, {.hands_back = hands_back}}, backend,
             inline_completion<loop_fixture::handler>{{&ends}}};
    backend.bind(loop);
    const latency_curve l{linear_latency{5ms, 1ms}, 4};
    const device_id d = loop.add_device(t0);
    backend.add_device(d);
    const model_id m = loop.add_model({.scheduling = {.latency = l, .slo = 1h}});
    backend.add_model(m, l);
    std::deque<request> all(2);
    const auto submit = [&](request& r, time_point now) {
      r.model = m;
      r.arrival = now;
      r.deadline = now + 1h;
      CHECK_FALSE(loop.submit(r, now));
    };
    submit(all[0], t0);  // So that the rate of arrivals is not about to be measured.
    loop.turn(t0);
    loop.turn(t0 + 6ms);
    loop.remove_device(d, t0 + 6ms);
    loop.turn(t0 + 6ms);
    ends.clear();
    CHECK(loop.doze_until(t0 + 6ms, t0 + 10ms) == t0 + 10ms);
    submit(all[1], t0 + 6ms);
    CHECK(loop.mail().has_to_wake() == hands_back);
    loop.mail().rouse();
    loop.turn(t0 + 7ms);
    loop.cancel(all[1]);
    loop.turn(t0 + 7ms);
    CHECK(ends == std::vector{end{&all[1], hands_back ? outcome::failed : outcome::cancelled}});
  }
}
TEST_CASE("a batch that may be sent ahead has the loop look that much before the end") {
  std::vector<end> ends;
  second_throws backend;
  sent_ahead_fixture f{ends, backend, false};
  std::deque<request> r(2);
  f.submit(r[0], t0);
  const auto matters = [&](time_point until) {
    CHECK(f.loop.doze_until(t0 + 3ms, until) == std::min(until, t0 + 4ms));
    f.post(r[1], t0 + 3ms);
    const bool has_to_wake = f.loop.mail().has_to_wake();
    f.loop.mail().rouse();
    f.loop.turn(t0 + 3ms);
    f.loop.cancel(r[1]);
    f.loop.turn(t0 + 3ms);
    return has_to_wake;
  };
  CHECK_FALSE(matters(t0 + 4ms));  // The rate of arrivals is measured anew only after a while.
  CHECK_FALSE(matters(t0 + 5ms));
  f.loop.complete(backend.launched.at(0), false);
  f.loop.turn(t0 + 6ms);
  CHECK(ends.back() == end{&r[0], outcome::completed});
}
TEST_CASE("cancelling: waiting at once, running with its batch, ended without effect") {
  loop_fixture f;
  std::deque<request> r(2);
  CHECK_FALSE(f.submit(r[0]));
  f.run_until(t0);
  CHECK_FALSE(f.submit(r[1]));
  f.run_until(t0 + 1ms);
  f.loop.cancel(r[1]);
  f.loop.cancel(r[0]);
  f.run_until(t0 + 1ms);
  CHECK(f.ends == std::vector<end>{{&r[1], outcome::cancelled}});
  CHECK(f.loop.waiting(f.model) == 0);
  f.run_until(t0 + 6ms);
  CHECK(f.ends.back() == end{&r[0], outcome::cancelled});
  f.loop.cancel(r[0]);
  f.run_until(t0 + 7ms);
  CHECK(f.ends.size() == 2);
}
TEST_CASE("if completion and cancellation tie, completion wins") {
  loop_fixture f;
  request r;
  CHECK_FALSE(f.submit(r));
  f.run_until(t0 + 6ms - 1ns);
  f.loop.cancel(r);
  f.now = t0 + 6ms;
  f.loop.turn(f.now);  // The end of the batch and the cancellation are in one turn.
  CHECK(f.ends == std::vector<end>{{&r, outcome::completed}});
}
TEST_CASE("a request may be submitted again when it has ended") {
  loop_fixture f;
  request r;
  for (int i = 1; i <= 3; ++i) {
    CHECK_FALSE(f.submit(r));
    f.run_until(f.now + 10ms);
    CHECK(f.ends.size() == static_cast<std::size_t>(i));
  }
}
TEST_CASE("removing a model serves what was accepted, then says so") {
  loop_fixture f;
  std::deque<request> r(2);
  bool gone = false;
  CHECK_FALSE(f.submit(r[0]));
  f.run_until(t0);
  f.loop.remove_model(f.model, f.now, [&] { gone = true; });
  CHECK(f.submit(r[1]) == refusal::unknown_model);
  CHECK_FALSE(gone);
  f.run_until(t0 + 6ms);
  CHECK(gone);
  CHECK(f.ends == std::vector<end>{{&r[0], outcome::completed}});
}
TEST_CASE("a request on its way to a model that is removed ends as dropped") {
  loop_fixture f;
  request r;
  CHECK_FALSE(f.submit(r));  // In the inbox.
  f.loop.remove_model(f.model, f.now);
  f.run_until(t0);
  CHECK(f.ends == std::vector<end>{{&r, outcome::dropped}});
}
TEST_CASE("a request on its way to a model whose id is given again is counted once") {
  loop_fixture f;
  request r;
  CHECK_FALSE(f.submit(r));  // In the inbox.
  f.loop.remove_model(f.model, f.now);
  const latency_curve l{linear_latency{5ms, 1ms}, 4};
  CHECK(f.loop.add_model({.scheduling = {.latency = l, .slo = 12ms}}) == f.model);
  f.run_until(t0 + 1s);
  CHECK(f.ends.size() == 1);
  CHECK(f.loop.waiting(f.model) == 0);
}
TEST_CASE("what an action throws that was posted is counted, and it does not run again") {
  loop_fixture f;
  int ran = 0;
  f.loop.post([&](time_point) {
    ++ran;
    throw std::runtime_error{"not now"};
  });
  f.loop.post([&](time_point) { ++ran; });
  f.loop.turn(f.now);
  f.loop.turn(f.now);
  CHECK(ran == 2);
  CHECK(f.loop.failed_callbacks() == 1);
}
TEST_CASE("options outside of their ranges are refused") {
  profile_backend b;
  std::vector<end> ends;
  using loop_type = loop_fixture::loop_type;
  CHECK_THROWS_AS((loop_type{basic_engine_core<loop_fixture::scheduler>{},
                             b,
                             inline_completion<loop_fixture::handler>{{&ends}},
                             {.max_models = 0}}),
                  config_error);
}
}  // namespace
}  // namespace cohort::engine::loop_test
