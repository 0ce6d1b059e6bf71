// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/model_config.hpp>

#include <cohort/core/error.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <tuple>
#include <vector>

#include <support/complaint.hpp>
#include <support/scheduler_suite.hpp>

namespace cohort::deferred::model_config_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};

struct sent_batches {
  std::vector<time_point> starts;
  request_list running;
  void dispatch(batch&& b) noexcept {
    starts.push_back(b.exec_at);
    running.splice(running.end(), b.requests);
  }
  void drop(request&) noexcept {}
  ~sent_batches() { running.clear(); }
};

/// When the batch of one request starts that comes at 0 to an idle device, has 12 ms, and takes 6
/// alone and 7 with another.
time_point start_with(duration longest_wait) {
  request r;  // Outlives the lists that it is in.
  sent_batches sent;
  basic_scheduler<frontrun, head> s;
  s.add_device(t0);
  const model_id m = s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16},
                                  .slo = 12ms,
                                  .longest_wait = longest_wait});
  r.model = m;
  r.arrival = t0;
  r.deadline = t0 + 12ms;
  s.on_arrival(r, t0, sent);
  for (int i = 0; i < 10 && sent.starts.empty(); ++i) {
    const time_point now = s.next_wake();
    if (now == never) break;
    s.advance(now, sent);
  }
  return sent.starts.empty() ? never : sent.starts.front();
}

TEST_CASE(
    "a request waits for others until its longest wait, or as the policy says if that is sooner") {
  CHECK(start_with(unbounded) == t0 + 5ms);  // 12 - l(2).
  CHECK(start_with(20ms) == t0 + 5ms);
  CHECK(start_with(2ms) == t0 + 2ms);
  CHECK(start_with(0ms) == t0);
}

using eager_driver = test::driver<basic_scheduler<eager, head>>;

/// A request that comes now and has so long.
void send(eager_driver& d, model_id m, duration time) {
  request& r = d.add();
  r.model = m;
  r.arrival = d.now;
  r.deadline = d.now + time;
  d.scheduler.on_arrival(r, d.now, d);
}
/// l(b) = b + 5 ms up to 2, SLO 20 ms.
model_id add_model(eager_driver& d, bool slo_steers) {
  return d.scheduler.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 2},
                                .slo = 20ms,
                                .slo_steers = slo_steers});
}

TEST_CASE("a request without a deadline starts as if it had to keep the SLO, or later") {
  test::driver<basic_scheduler<frontrun, drop_head>> d{basic_scheduler<frontrun, drop_head>{}};
  d.scheduler.add_device(d.now);
  const model_id m = d.scheduler.add_model(
      {.latency = latency_curve{linear_latency{5ms, 1ms}, 16}, .slo = 12ms, .slo_steers = true});
  const auto send_one = [&] {
    request& r = d.add();
    r.model = m;
    r.arrival = d.now;
    r.deadline = d.now + 1h;
    d.scheduler.on_arrival(r, d.now, d);
  };
  send_one();
  d.run_until(t0 + 6ms);
  for (int i = 0; i < 12; ++i) send_one();
  d.run_until(t0 + 100ms);
  // At 5, 12 - l(2). That ends at 11; the others aim at 18, which 12 - 1 of them would miss.
  REQUIRE(d.sent.size() == 2);
  CHECK(std::get<0>(d.sent[0]) == t0 + 5ms);
  CHECK(std::get<0>(d.sent[1]) == t0 + 11ms);
  CHECK(std::get<2>(d.sent[1]) == 12);
  CHECK(d.dropped.empty());
}

TEST_CASE("a backlog without deadlines takes no turn of a model that keeps its SLO") {
  eager_driver d{basic_scheduler<eager, head>{}};
  d.scheduler.add_device(d.now);
  const model_id many = add_model(d, true);
  const model_id one = add_model(d, false);
  for (int i = 0; i < 20; ++i) send(d, many, 1h);  // Two run until 7.
  d.run_until(t0 + 1ms);
  send(d, one, 20ms);
  d.run_until(t0 + 200ms);
  // At 7 the backlog is as urgent as what came at 0, when its last batch started; at 14 as what
  // came at 7, and the other model as what came at 1.
  CHECK(d.fate.at(21) == 'r');
  CHECK_FALSE(d.late);
  REQUIRE(d.sent.size() == 11);
  CHECK(std::get<0>(d.sent[2]) == t0 + 14ms);
  CHECK(std::get<2>(d.sent[2]) == 1);
}

TEST_CASE("a model without deadlines has a batch an SLO beside one with far too much to do") {
  eager_driver d{basic_scheduler<eager, head>{}};
  d.scheduler.add_device(d.now);
  const model_id patient = add_model(d, true);
  const model_id flooded = add_model(d, false);
  for (int i = 0; i < 1000; ++i) send(d, patient, 1h);
  for (int ms = 1; ms <= 1000; ++ms) {
    d.run_until(t0 + ms * 1ms);
    send(d, flooded, 20ms);
  }
  std::uint64_t of_patient = 0;
  for (const auto& [id, how] : d.fate) of_patient += id <= 1000 && how == 'r' ? 1 : 0;
  // It is as urgent as any other 20 - 7 ms after its last batch, and waits for a batch of 7 ms
  // then.
  CHECK(of_patient >= 2 * (1000 / (13 + 7)));
  CHECK(of_patient <= 2 * (1000 / 13 + 2));
}

TEST_CASE("a negative longest wait is refused") {
  basic_scheduler<frontrun, head> s;
  CHECK(test::gist_of<config_error>([&] {
          (void)s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16},
                             .slo = 12ms,
                             .longest_wait = -1ns});
        }) == "model_config: longest_wait ... at least 0");
}

}  // namespace
}  // namespace cohort::deferred::model_config_test
