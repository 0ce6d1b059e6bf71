// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/request_desk.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/sharded/exchange.hpp>
#include <cohort/deferred/sharded/shard_half.hpp>

#include <chrono>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace cohort::engine::request_desk_test {
namespace {
using namespace std::chrono_literals;
using deferred::shard_half;
constexpr time_point t0{};
constexpr model_id m0{0};

struct noted {
  void deliver(request& r, outcome how) noexcept { all->emplace_back(&r, how); }
  std::vector<std::pair<request*, outcome>>* all;
};
using desk_type = request_desk<shard_half, noted>;
static_assert(requests_desk<desk_type, shard_half>);

/// A shard of one repeatable model, at most two of which may wait, and what it decides.
struct fixture {
  fixture() {
    half.add_model(
        m0,
        {.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 20ms, .queue_capacity = 2});
    doors.open(m0, {.capacity = 100, .is_repeatable = true});
    desk.on_model(m0, half);
  }
  request& enter(time_point now = t0) {
    request& r = requests.emplace_back();
    r.model = m0;
    r.deadline = now + 20ms;
    REQUIRE_FALSE(doors.enter(r, now));
    return r;
  }
  request& admit(time_point now = t0) {
    request& r = enter(now);
    REQUIRE_FALSE(desk.refuses(r, half, now));
    half.on_arrival(r, now, *this);
    return r;
  }
  // The half's sink.
  void dispatch(deferred::batch&& b) noexcept { desk.dispatch(std::move(b), half, t0); }
  void drop(request& r) noexcept { desk.drop(r, half, t0); }
  void left(model_id, deferred::model_state&&) noexcept {}

  std::vector<std::pair<request*, outcome>> ends;
  std::deque<request> requests;
  deferred::exchange between{1, 1};
  shard_half half{between, 0};
  sharded_doors doors{1, [](model_id) {}};
  desk_type desk{doors, noted{&ends}, {.response = 1ms, .retries = 1}, 8};
};

TEST_CASE("a request that finds its queue full ends so, as of a loop") {
  fixture f;
  request& a = f.admit();
  request& b = f.admit();
  request& c = f.enter();
  const auto why = f.desk.refuses(c, f.half, t0);
  REQUIRE(why);
  CHECK(*why == refusal::queue_full);
  f.desk.refused(c, *why);
  CHECK(f.ends == std::vector{std::pair{&c, outcome_of(refusal::queue_full)}});
  CHECK(f.doors.inside() == 2);
  CHECK(f.half.on_cancel(a, t0, f));
  f.desk.cancelled(a);
  CHECK(f.ends.back() == std::pair{&a, outcome::cancelled});
  CHECK(f.doors.waiting(m0) == 1);
  CHECK(f.half.on_cancel(b, t0, f));
}
TEST_CASE("batches go to the rank's thread in order, and their requests wait no more") {
  fixture f;
  request& a = f.enter();
  request& b = f.enter();
  for (request* r : {&a, &b}) {
    CHECK_FALSE(f.desk.refuses(*r, f.half, t0));
    deferred::batch one{};
    one.model = m0;
    one.requests.push_back(*r);
    one.number = r == &a ? 1 : 2;
    f.desk.dispatch(std::move(one), f.half, t0);
  }
  CHECK(f.doors.waiting(m0) == 0);
  CHECK(f.doors.inside() == 2);
  CHECK(f.desk.has_sent());
  deferred::batch sent{};
  CHECK(f.desk.take_sent(sent));
  CHECK(sent.number == 1);
  sent.requests.clear();
  CHECK(f.desk.take_sent(sent));
  CHECK(sent.number == 2);
  sent.requests.clear();
  CHECK_FALSE(f.desk.take_sent(sent));

  // The response takes 1 ms.
  f.desk.ended(a, false, t0 + 19ms);
  CHECK(f.ends.back() == std::pair{&a, outcome::completed});
  f.desk.ended(b, false, t0 + 19ms + 1ns);
  CHECK(f.ends.back() == std::pair{&b, outcome::late});
  CHECK(f.doors.inside() == 0);
}
TEST_CASE("one that failed runs again while there is time and room, as often as the rules say") {
  fixture f;
  request& r = f.enter();
  CHECK_FALSE(f.desk.refuses(r, f.half, t0));
  r.is_waiting = false;
  f.doors.stop_waiting(m0, 1);
  CHECK_FALSE(f.desk.runs_again(r, false, f.half, t0));
  CHECK_FALSE(f.desk.runs_again(r, true, f.half, t0 + 14ms + 1ns));  // One takes 6 ms.
  REQUIRE(f.desk.runs_again(r, true, f.half, t0 + 14ms));
  f.desk.waits_again(r);
  CHECK(r.attempts == 1);
  CHECK(f.doors.waiting(m0) == 1);
  CHECK_FALSE(f.desk.runs_again(r, true, f.half, t0));  // Once is enough.
  f.desk.drop(r, f.half, t0);
  CHECK(f.ends.back() == std::pair{&r, outcome::failed});  // It did run.
  CHECK(f.doors.waiting(m0) == 0);

  request& late = f.enter();
  CHECK_FALSE(f.desk.refuses(late, f.half, t0));
  f.admit();
  f.admit();
  CHECK_FALSE(f.desk.runs_again(late, true, f.half, t0));  // No room.
  f.desk.ended(late, true, t0);
  CHECK(f.ends.back() == std::pair{&late, outcome::failed});
  f.half.close(f);
  CHECK(f.ends.back().second == outcome::dropped);
  CHECK(f.doors.inside() == 0);
}

}  // namespace
}  // namespace cohort::engine::request_desk_test
