// SPDX-License-Identifier: Apache-2.0
// What a scheduler makes of its rounds of trials. That they help is shown in sim/tuned_test.cpp.
#include <cohort/deferred/twin/tuned_scheduler.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace cohort::deferred::tuned_scheduler_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{100s};

/// Answers when it is told to, and says whatever it is told to.
struct told_trials {
  struct state {
    tuning_job* job = nullptr;
    int started = 0;
    int cancelled = 0;
    bool is_eager_best = true;
  };
  std::shared_ptr<state> s = std::make_shared<state>();

  void start(tuning_job& j) noexcept {
    s->job = &j;
    ++s->started;
    j.results.clear();
  }
  [[nodiscard]] bool is_done() const noexcept { return s->job == nullptr; }
  void cancel() noexcept { ++s->cancelled; }
  /// The round ends.
  void answer(bool with_results = true) const {
    for (const settings& x : s->job->tried) {
      const bool is_good = s->is_eager_best == (x.window == window_kind::eager);
      if (!with_results) break;
      s->job->results.push_back({.bad = is_good ? 0.0 : 0.5, .latency = 0.01, .requests = 10'000});
    }
    s->job = nullptr;
  }
};

/// One device, whose batches take what they should, and requests of 30 ms one each 2 ms.
struct server {
  explicit server(const tuning_options& o = {.initial = {}}) : s{{}, o, runner} {
    s.add_device(t0);
    m = s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 30ms});
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server() {
    while (!at_work.requests.empty()) at_work.requests.pop_front();
    if (is_moved) return;
    if (end) finish();
    s.remove_model(m, now, *this);
  }

  void dispatch(batch&& b) noexcept {
    if (end) COHORT_ASSERT(false);
    end = b.exec_at + b.expected;
    at_work = std::move(b);
  }
  void drop(request& r) noexcept { r.state = request_state::idle; }
  void finish() {
    while (!at_work.requests.empty()) {
      request& r = at_work.requests.front();
      at_work.requests.pop_front();
      r.state = request_state::idle;
    }
    now = std::max(now, *end);
    end.reset();
    s.on_complete(device_entry{}, now);
  }
  void run(duration length) {
    const time_point until = now + length;
    while (now < until) {
      const time_point next = std::min({arrival, end.value_or(never), s.next_wake()});
      now = std::max(now, next);
      if (arrival <= now) {
        arrival = now + 2ms;
        request* free = nullptr;
        for (request& r : pool) {
          if (r.state == request_state::idle) free = &r;
        }
        if (free == nullptr) free = &pool.emplace_back();
        free->model = m;
        free->arrival = now;
        free->deadline = now + 30ms;
        s.on_arrival(*free, now, *this);
      }
      if (end && *end <= now) finish();
      s.advance(now, *this);
    }
  }

  std::deque<request> pool;
  batch at_work;
  std::optional<time_point> end;
  bool is_moved = false;
  told_trials runner;
  basic_tuned_scheduler<told_trials> s;
  model_id m;
  time_point now = t0;
  time_point arrival = t0;
};

TEST_CASE("rounds wait for requests to go by, and for each other") {
  server x;
  x.run(390ms);  // 195 requests.
  CHECK(x.runner.s->started == 0);
  x.run(3s);
  CHECK(x.runner.s->started == 1);  // The first has not answered.
  CHECK(x.s.rounds().judged == 0);
  x.runner.answer();
  x.run(10ms);
  CHECK(x.s.rounds().judged == 1);
  x.run(600ms);
  CHECK(x.runner.s->started == 2);
}

TEST_CASE("the answer is adopted by the first advance after it has come") {
  server x;
  x.run(1s);
  REQUIRE(x.runner.s->job != nullptr);
  x.run(1s);
  CHECK(x.s.present() == settings{});
  x.runner.answer();
  x.run(5ms);
  CHECK(x.s.present().window == window_kind::eager);
  REQUIRE(x.s.changes().size() == 1);
  CHECK(x.s.changes()[0].before.bad == 0.5);
  CHECK(x.s.changes()[0].after.bad == 0);
}

TEST_CASE("a round knows what waits and how long devices are busy") {
  server x;
  x.run(1s);
  const trial_start& s = x.runner.s->job->start;
  REQUIRE(s.capacities.size() == 1);
  REQUIRE(s.work.size() == 1);
  CHECK(s.work[0] >= 0ms);
  CHECK(s.work[0] <= 21ms);
  CHECK(s.waiting.size() <= 15);
  for (const recorded_arrival& a : s.waiting) CHECK(a.at == s.now);
  CHECK(s.arrivals.front().at == s.now);
  CHECK(s.arrivals.size() >= 200);
}

TEST_CASE("too little to go by is said, and changes nothing") {
  server x;
  x.arrival = never;
  x.run(0ms);
  request r;
  r.model = x.m;
  r.deadline = t0 + 30ms;
  x.s.on_arrival(r, t0, x);
  while (x.s.next_wake() != never || x.end) {
    x.now = std::min(x.s.next_wake(), x.end.value_or(never));
    if (x.end && *x.end <= x.now) x.finish();
    x.s.advance(x.now, x);
  }
  CHECK(x.s.rounds().without_enough == 1);
  CHECK(x.runner.s->started == 0);
}

TEST_CASE("a round without an answer, or one that comes too late, changes nothing") {
  server x;
  x.run(1s);
  REQUIRE(x.runner.s->job != nullptr);
  x.runner.answer(false);
  x.run(5ms);
  CHECK(x.s.rounds().without_answer == 1);
  x.run(1s);
  REQUIRE(x.runner.s->job != nullptr);
  x.run(21s);
  x.runner.answer();
  x.run(5ms);
  CHECK(x.s.rounds().without_answer == 2);
  CHECK(x.s.present() == settings{});
  CHECK(x.s.changes().empty());
}

TEST_CASE("models and devices that come and go make a round void, and the next knows them") {
  server x;
  x.run(1s);
  REQUIRE(x.runner.s->started == 1);
  const auto next_round = [&] {  // The one under way ends, and another begins.
    if (x.runner.s->job != nullptr) x.runner.answer();
    x.run(1s);
    REQUIRE(x.runner.s->job != nullptr);
  };
  const model_id other =
      x.s.add_model({.latency = latency_curve{linear_latency{1ms, 1ms}, 4}, .slo = 30ms});
  CHECK(x.runner.s->cancelled == 1);
  CHECK(x.runner.s->job->start.models.size() == 1);  // It is not the scheduler's while it runs.
  next_round();
  CHECK(x.s.present() == settings{});
  CHECK(x.s.rounds().without_answer == 1);
  CHECK(x.runner.s->job->start.models.size() == 2);
  const device_id d = x.s.add_device(x.now);
  CHECK(x.runner.s->cancelled == 2);
  x.s.remove_device(d, x.now);
  next_round();
  CHECK(x.runner.s->job->start.capacities.size() == 1);
  x.s.remove_model(other, x.now, x);
  next_round();
  CHECK_FALSE(x.runner.s->job->start.models[other.index()]);
  CHECK(x.s.rounds().without_answer == 3);
  CHECK(x.s.rounds().judged == 0);
}

TEST_CASE("what arrived for a model that is gone is not taken for another's of its id") {
  server x;
  x.run(1s);
  x.s.remove_model(x.m, x.now, x);
  x.m = x.s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 30ms});
  REQUIRE(x.m == model_id{0});
  const int before = x.runner.s->started;
  if (x.runner.s->job != nullptr) x.runner.answer();
  x.run(390ms);
  CHECK(x.runner.s->started == before);  // Fewer than 200 of its own.
  x.run(1s);
  REQUIRE(x.runner.s->started == before + 1);
  CHECK(x.runner.s->job->start.arrivals.size() < 720);
}

TEST_CASE("it may be moved while a round is under way") {
  server x;
  x.run(1s);
  REQUIRE(x.runner.s->job != nullptr);
  basic_tuned_scheduler<told_trials> other{std::move(x.s)};
  x.runner.answer();
  if (x.end) x.end.reset();
  struct {
    void dispatch(batch&&) noexcept {}
    void drop(request& r) noexcept { r.state = request_state::idle; }
  } nobody;
  other.remove_model(x.m, x.now, nobody);
  other.advance(x.now, nobody);
  CHECK(other.rounds().without_answer == 1);
  x.is_moved = true;
}

TEST_CASE("it may not be assigned to: the round under way would lose its job") {
  CHECK(std::is_move_constructible_v<tuned_scheduler>);
  CHECK_FALSE(std::is_move_assignable_v<tuned_scheduler>);
}

TEST_CASE("after a jump of the clock it goes on, and drops what waited") {
  for (const duration jump : {duration{1h}, duration{24h * 365}}) {
    server x;
    x.run(1s);
    x.runner.answer();
    x.run(500ms);
    const int before = x.runner.s->started;
    x.now += jump;
    x.arrival = x.now;
    x.run(10s);  // Goes on at once: nothing of before the jump waits.
    CHECK(x.s.models().queued_requests(x.m) < 30);
    CHECK(x.s.next_wake() > x.now - 30ms);
    if (x.runner.s->job != nullptr) x.runner.answer();
    x.run(5s);
    CHECK(x.runner.s->started > before);
    REQUIRE(x.runner.s->job != nullptr);
    // A round looks at nothing from before it.
    for (const recorded_arrival& a : x.runner.s->job->start.arrivals) {
      CHECK(a.at - x.runner.s->job->start.now <= 20s);
    }
  }
}

TEST_CASE("rounds pause as their cost demands") {
  server x;
  x.run(1s);
  REQUIRE(x.runner.s->job != nullptr);
  x.runner.s->is_eager_best = false;
  x.runner.s->job->cost = 160ms;  // Of 8 % of a core: 2 s.
  x.runner.answer();
  x.run(1900ms);
  CHECK(x.runner.s->started == 1);
  x.run(200ms);
  CHECK(x.runner.s->started == 2);
  CHECK(x.s.rounds().cost == 160ms);
}

TEST_CASE("switched off it decides by its initial settings, and tries nothing") {
  server x{{.is_on = false, .initial = {.window = window_kind::eager}}};
  x.run(5s);
  CHECK(x.runner.s->started == 0);
  CHECK(x.s.present().window == window_kind::eager);
  CHECK(x.s.rounds().without_enough == 0);
}

}  // namespace
}  // namespace cohort::deferred::tuned_scheduler_test
