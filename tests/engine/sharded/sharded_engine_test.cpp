// SPDX-License-Identifier: Apache-2.0
// What all engines do is in engine_test.cpp and thread_chaos_test.cpp.
#include <cohort/engine/sharded/sharded_engine.hpp>

#include <doctest/doctest.h>

#include <cohort/engine/backend.hpp>
#include <cohort/engine/profile_backend.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <support/complaint.hpp>
#include <thread>
#include <vector>

namespace cohort::engine::sharded_engine_test {
namespace {
using namespace std::chrono_literals;

struct counted : request {
  int arrivals = 0;  // Of the thread that submits.
  std::atomic<int> ends{0};
};
struct tally {
  std::array<std::atomic<std::uint64_t>, outcome_count> of{};
  std::uint64_t operator[](outcome o) const { return of[static_cast<std::size_t>(o)]; }
};
struct count {
  tally* all;
  void operator()(request& r, outcome how) const {
    ++all->of[static_cast<std::size_t>(how)];
    ++static_cast<counted&>(r).ends;
  }
};
using context = inline_completion<count>;

/// Ends batches when it is told to, so or so.
struct told_backend {
  void launch(const deferred::batch& b) {
    const std::lock_guard lock{mutex};
    at_work.push_back(b.at());
    ++launched;
  }
  template <class Engine>
  void end_all(Engine& e, bool failed) {
    const std::lock_guard lock{mutex};
    for (const batch_ticket& at : at_work) e.complete(at, failed);
    at_work.clear();
  }
  std::size_t at_work_now() {
    const std::lock_guard lock{mutex};
    return at_work.size();
  }
  std::mutex mutex;
  std::vector<batch_ticket> at_work;
  std::atomic<int> launched{0};
};
template <class Backend, class Context>
using eager_engine_of =
    basic_sharded_engine<Backend, Context, steady_clock, deferred::eager, deferred::head>;
template <class Backend>
using eager_engine = eager_engine_of<Backend, context>;

model_config some_model(bool is_repeatable = false) {
  return {.scheduling = {.latency = latency_curve{linear_latency{10us, 2us}, 4}, .slo = 1h},
          .is_repeatable = is_repeatable};
}
template <class Engine>
void submit(Engine& e, counted& r, model_id m) {
  r.model = m;
  r.arrival = steady_clock{}.now();
  r.deadline = r.arrival + 1h;
  REQUIRE_FALSE(e.submit(r));
}
void wait_for_end(const counted& r) {
  while (r.ends == 0) std::this_thread::yield();
}

TEST_CASE("options outside their ranges are refused by name") {
  told_backend b;
  tally all;
  const auto make = [&](const sharded_engine_options& o) {
    eager_engine<told_backend>{b, context{{&all}}, o};
  };
  CHECK(test::gist_of<config_error>([&] { (void)make({.threads = {.shards = 0}}); }) ==
        "sharded_options: shards ... at least 1");
  CHECK(test::gist_of<config_error>([&] { (void)make({.response = -1ns}); }) ==
        "sharded_engine: response ... at least 0");
  CHECK(test::gist_of<config_error>([&] { (void)make({.health = {.hands_back = true}}); }) ==
        "sharded_engine: hands_back ... off");
  CHECK_THROWS_AS(make({.refusals = {.tolerance = 0}}), config_error);
}
TEST_CASE("what failed runs again if its model bears it, and a batch that fails ends the others") {
  told_backend b;
  tally all;
  eager_engine<told_backend> e{b, context{{&all}}};
  e.add_device([](device_id) {});
  const model_id once = e.add_model(some_model(), [](model_id) {});
  const model_id again = e.add_model(some_model(true), [](model_id) {});
  counted r;
  submit(e, r, once);
  while (b.launched < 1) std::this_thread::yield();
  b.end_all(e, true);
  wait_for_end(r);
  CHECK(all[outcome::failed] == 1);

  counted s;
  submit(e, s, again);
  while (b.launched < 2) std::this_thread::yield();
  CHECK(e.waiting(again) == 0);
  b.end_all(e, true);
  while (b.launched < 3) std::this_thread::yield();
  CHECK(s.ends == 0);
  b.end_all(e, false);
  wait_for_end(s);
  CHECK(all[outcome::completed] == 1);
  CHECK(s.attempts == 1);
}
TEST_CASE(
    "one that is cancelled while it runs ends so with its batch, whichever shard has it then") {
  told_backend b;
  tally all;
  eager_engine<told_backend> e{b, context{{&all}}, {.threads = {.shards = 2}}};
  e.add_device([](device_id) {});
  const model_id m = e.add_model(some_model(), [](model_id) {});
  counted r;
  submit(e, r, m);
  while (b.launched < 1) std::this_thread::yield();
  e.move_model(m, 1 - e.shard_of(m));
  e.cancel(r);
  e.cancel(r);
  counted waits;
  submit(e, waits, m);
  e.cancel(waits);
  wait_for_end(waits);
  e.move_model(m, 1 - e.shard_of(m));
  CHECK(r.ends == 0);
  b.end_all(e, false);
  wait_for_end(r);
  CHECK(all[outcome::cancelled] == 2);
  CHECK_THROWS_AS(e.move_model(m, 2), config_error);
  e.move_model(model_id{9}, 0);  // Nothing is moved.
}
TEST_CASE(
    "a model that is removed serves those it has, and then is gone; so is one in two removals") {
  told_backend b;
  tally all;
  eager_engine<told_backend> e{b, context{{&all}}};
  e.add_device([](device_id) {});
  const model_id m = e.add_model(some_model(), [](model_id) {});
  counted r;
  submit(e, r, m);
  while (b.launched < 1) std::this_thread::yield();
  std::atomic<int> gone{0};
  e.remove_model(m, [&] {
    ++gone;
    throw 7;  // That is the caller's to see to.
  });
  e.remove_model(m, [&] { ++gone; });
  e.remove_model(model_id{200}, [&] { ++gone; });
  e.run_inside([] {});  // Behind those.
  CHECK_FALSE(e.is_accepting(m));
  counted late;
  late.model = m;
  CHECK(e.submit(late) == refusal::unknown_model);
  CHECK(gone == 0);
  b.end_all(e, false);
  wait_for_end(r);
  while (gone == 0) std::this_thread::yield();
  CHECK(e.drain_for(1h) == drain_report{});
  CHECK(gone == 1);
  CHECK(e.failed_callbacks() == 1);
  CHECK_THROWS_AS(e.add_model(some_model(), [](model_id) {}), config_error);  // It has ended.
  int inside = 0;
  e.run_inside([&] { ++inside; });
  e.post([&] { e.post([&] { ++inside; }); });
  CHECK(inside == 2);
}
TEST_CASE("a model that is removed as all is drained is gone before the engine is") {
  told_backend b;
  tally all;
  counted r;
  std::atomic<int> gone{0};
  {
    eager_engine<told_backend> e{b, context{{&all}}};
    e.add_device([](device_id) {});
    const model_id m = e.add_model(some_model(), [](model_id) {});
    submit(e, r, m);
    while (b.launched < 1) std::this_thread::yield();
    e.remove_model(m, [&] { ++gone; });
    CHECK(e.drain_for(0s) == drain_report{.requests = 1});
    b.end_all(e, false);
  }
  CHECK(gone == 1);
}
TEST_CASE("who joins waits for the drain, whoever asks for it") {
  told_backend b;
  tally all;
  counted before;
  counted after;
  eager_engine<told_backend> e{b, context{{&all}}};
  e.add_device([](device_id) {});
  const model_id m = e.add_model(some_model(), [](model_id) {});
  std::atomic<bool> has_joined{false};
  std::thread joiner{[&] {
    e.join();
    has_joined = true;
  }};
  for (counted* r : {&before, &after}) {
    submit(e, *r, m);
    while (b.at_work_now() == 0) std::this_thread::yield();
    b.end_all(e, false);
    wait_for_end(*r);
    CHECK_FALSE(has_joined);
  }
  e.drain();
  joiner.join();
  CHECK(all[outcome::completed] == 2);
}
TEST_CASE("cancelling never waits for room, on the thread that would make it neither") {
  told_backend b;
  std::deque<counted> requests(8);
  std::atomic<std::size_t> ends{0};
  std::atomic<std::size_t> taken{0};
  std::function<void()> in_handler;
  auto handler = [&](request& r, outcome) {
    if (&r == &requests[0]) in_handler();
    ++ends;
  };
  eager_engine_of<told_backend, inline_completion<decltype(handler)>> e{
      b, inline_completion{handler}, {.threads = {.inlet = 2}}};
  const model_id m = e.add_model(some_model(), [](model_id) {});
  const auto take = [&](counted& r) {
    r.model = m;
    r.arrival = steady_clock{}.now();
    r.deadline = r.arrival + 1h;
    const bool is_taken = !e.submit_quietly(r);
    taken += is_taken;
    return is_taken;
  };
  const auto fill_and_cancel = [&] {
    std::size_t n = 1;
    while (n < requests.size() && take(requests[n])) ++n;
    for (std::size_t i = 1; i < n; ++i) e.cancel(requests[i]);
  };
  in_handler = fill_and_cancel;
  REQUIRE(take(requests[0]));
  e.cancel(requests[0]);
  e.wake_up();
  while (ends == 0 || ends != taken) std::this_thread::yield();
  CHECK(taken >= 3);
  fill_and_cancel();  // From outside, with a shard that may sleep.
  e.wake_up();
  while (ends != taken) std::this_thread::yield();
}
TEST_CASE("under far more than devices can serve requests are refused at once, sooner or later") {
  profile_backend b;
  tally all;
  std::deque<counted> requests(4000);
  sharded_engine<profile_backend, context> e{b, context{{&all}}};
  b.bind(e);
  const latency_curve l{linear_latency{1ms, 100us}, 8};
  e.add_device([&](device_id d) { b.add_device(d); });
  const model_id m =
      e.add_model({.scheduling = {.latency = l, .slo = 20ms, .queue_capacity = 1 << 14}},
                  [&](model_id id) { b.add_model(id, l); });
  std::uint64_t taken = 0;
  for (const steady_clock clock; all[outcome::refused] == 0;) {
    for (counted& r : requests) {
      if (r.ends != r.arrivals) continue;  // It waits, or runs.
      r.model = m;
      r.arrival = clock.now();
      r.deadline = r.arrival + 20ms;
      if (e.submit(r)) continue;
      ++r.arrivals;
      ++taken;
    }
  }
  CHECK(e.drain_for(1h) == drain_report{});
  std::uint64_t ends = 0;
  for (const auto& n : all.of) ends += n;
  CHECK(ends == taken);
  CHECK(all[outcome::completed] + all[outcome::late] > 0);
}
}  // namespace
}  // namespace cohort::engine::sharded_engine_test
