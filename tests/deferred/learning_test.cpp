// SPDX-License-Identifier: Apache-2.0
// Schedulers that learn latencies from the batches that end.
#include <cohort/deferred/model_config.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/dispatch_log.hpp>

namespace cohort::deferred::learning_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
using log = test::dispatch_log;

/// A device and a model, ℓ(b) = 5 ms + b ms, SLO 60 ms. One request at a time, each batch taking
/// `ratio` times its profile.
template <class Scheduler>
struct server {
  explicit server(bool learns, double quantile = 0.9) {
    s.learn({.is_on = learns, .quantile = quantile}, t0);
    s.add_device(t0);
    m = s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 60ms});
  }
  void serve(double ratio, duration late = 0ms, bool failed = false) {
    r.arrival = now;
    r.deadline = now + 60ms;
    s.on_arrival(r, now, out);
    s.advance(now, out);
    while (out.running.empty() && out.dropped == 0) {
      now = s.next_wake() + late;
      s.advance(now, out);
    }
    if (out.dropped > 0) return;
    sent_at = now;
    const deferred::batch& b = out.running.front();
    expected = b.expected;
    now = b.exec_at + duration{std::llround(ratio * static_cast<double>(b.work.count()))};
    out.running.front().requests.clear();
    out.running.clear();
    r.state = request_state::idle;
    s.on_complete(device_id{0}, now, failed);
    s.advance(now, out);
    now += 100ms;
  }

  Scheduler s;
  log out;
  request r;
  model_id m;
  time_point now = t0;
  time_point sent_at;
  duration expected{};
};

TEST_CASE_TEMPLATE("a scheduler that does not learn believes its profiles", S, scheduler,
                   pooled_scheduler) {
  server<S> x{false};
  for (int i = 0; i < 100; ++i) x.serve(2);
  CHECK(x.expected == 6ms);
  CHECK(x.s.models().latency(x.m).correction(1) == 1);
  CHECK(x.s.models().usual(x.m, 1).log_ratio ==
        doctest::Approx(std::log(2)).epsilon(0.01));  // Yet.
}

TEST_CASE_TEMPLATE("what batches take moves windows, expected ends and admission", S, scheduler,
                   pooled_scheduler) {
  server<S> x{true};
  x.serve(2);
  CHECK(x.expected == 6ms);
  for (int i = 0; i < 200; ++i) x.serve(2);
  CHECK(x.s.models().latency(x.m).correction(1) == doctest::Approx(2).epsilon(0.01));
  CHECK(to_ms(x.expected) == doctest::Approx(12).epsilon(0.01));
  CHECK(to_ms(x.s.models().least_time(x.m)) == doctest::Approx(12).epsilon(0.01));
  // Frontrun: 60 − 2 ℓ(2) = 46 after the arrival.
  CHECK(to_ms(x.sent_at - x.r.arrival) == doctest::Approx(46).epsilon(0.01));
  for (int i = 0; i < 100; ++i) x.serve(1);  // And back.
  CHECK(to_ms(x.expected) == doctest::Approx(6).epsilon(0.02));
}

TEST_CASE_TEMPLATE("a request of several rows is taken to last as many times one", S, scheduler,
                   pooled_scheduler) {
  server<S> x{true};
  x.r.rows = 10;
  x.serve(1);
  CHECK(x.expected == 60ms);
  for (int i = 0; i < 200; ++i) x.serve(0.5);
  CHECK(x.s.models().latency(x.m).correction(1) == doctest::Approx(0.5).epsilon(0.01));
  CHECK(to_ms(x.expected) == doctest::Approx(30).epsilon(0.01));
  x.r.rows = 1;
  x.serve(1);
  CHECK(to_ms(x.expected) == doctest::Approx(3).epsilon(0.01));
}

TEST_CASE("batches that fail teach nothing") {
  server<scheduler> x{true};
  for (int i = 0; i < 100; ++i) x.serve(0.01, 0ms, true);
  CHECK(x.s.models().latency(x.m).batches().count() == 0);
  CHECK(x.expected == 6ms);
}

TEST_CASE_TEMPLATE("a device that failed is used last, until it has done something", S, scheduler,
                   pooled_scheduler) {
  S s;
  for (int i = 0; i < 2; ++i) s.add_device(t0);
  const model_id m =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 1}, .slo = 60ms});
  log out;
  time_point now = t0;
  request a;
  request b;
  const auto send = [&](request& r) {
    r.model = m;
    r.arrival = now;
    r.deadline = now + 60ms;
    const std::size_t before = out.running.size();
    s.on_arrival(r, now, out);
    for (s.advance(now, out); out.running.size() == before; s.advance(now, out)) {
      now = s.next_wake();
    }
    return out.running.back().device.value();
  };
  const auto complete = [&](bool failed) {
    batch& first = out.running.front();
    s.on_complete(first.at(), now + 1ms, failed);
    for (request& r : first.requests) r.state = request_state::idle;
    first.requests.clear();
    out.running.erase(out.running.begin());
    now += 10ms;
  };
  CHECK(send(a) == 0);
  complete(true);
  for (int i = 0; i < 3; ++i) {
    CHECK(send(a) == 1);
    complete(false);
  }
  CHECK(send(a) == 1);
  CHECK(send(b) == 0);  // The other is busy.
  complete(false);
  complete(false);
  CHECK(send(a) == 0);
  complete(false);
}

TEST_CASE("no model is shut out for good: a batch of one counts as 0.8 of its SLO at most") {
  server<scheduler> x{true};
  for (int i = 0; i < 300; ++i) x.serve(9.9);
  CHECK(x.out.dropped == 0);
  CHECK(to_ms(x.s.models().least_time(x.m)) == doctest::Approx(48));
}

TEST_CASE("the wake margin follows the driver's lateness") {
  server<scheduler> x{true};
  for (int i = 0; i < 100; ++i) x.serve(1, 400us);
  CHECK(to_ms(x.s.lateness().margin()) == doctest::Approx(0.4).epsilon(0.03));
  // Woken for the window's opening, 60 − ℓ(2) = 53 after the arrival, in spite of being late.
  CHECK(to_ms(x.sent_at - x.r.arrival) == doctest::Approx(53).epsilon(0.001));
}

TEST_CASE("turning it off goes back to the profile") {
  server<scheduler> x{true};
  for (int i = 0; i < 100; ++i) x.serve(2);
  x.s.learn({}, x.now);
  x.serve(2);
  CHECK(x.expected == 6ms);
}

TEST_CASE("a slow device is used last, and its batches are taken to last longer") {
  scheduler s;
  s.learn({.is_on = true}, t0);
  for (int i = 0; i < 4; ++i) s.add_device(t0);
  const model_id m =
      s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 1}, .slo = 60ms});
  log out;
  std::vector<request> requests(4);
  time_point now = t0;
  const auto round = [&](duration first) {  // Four batches of one at one time; the first is slow.
    for (request& r : requests) {
      r.model = m;
      r.arrival = now;
      r.deadline = now + 60ms;
      s.on_arrival(r, now, out);
    }
    while (out.running.size() < requests.size()) {
      s.advance(now, out);
      if (out.running.size() < requests.size()) now = s.next_wake();
    }
    std::vector<std::pair<std::uint32_t, duration>> sent;
    for (batch& b : out.running) {
      sent.emplace_back(b.device.value(), b.expected);
      for (request& r : b.requests) r.state = request_state::idle;
      b.requests.clear();
    }
    out.running.clear();
    for (std::uint32_t d = 1; d < 4; ++d) s.on_complete(device_id{d}, now + 6ms);
    s.on_complete(device_id{0}, now + first);
    now += 100ms;
    s.advance(now, out);
    return sent;
  };
  CHECK(round(6ms).front().first == 0);
  for (int i = 0; i < 60; ++i) round(12ms);
  const auto sent = round(12ms);
  CHECK(sent.back().first == 0);
  CHECK(to_ms(sent.back().second) > 1.5 * to_ms(sent.front().second));
  for (int i = 0; i < 60; ++i) round(6ms);
  CHECK(round(6ms).front().first == 0);
}

TEST_CASE("impossible options are refused by name") {
  scheduler s;
  CHECK(test::gist_of<config_error>([&] { (void)s.learn({.is_on = true, .quantile = 1}, t0); }) ==
        "learning: quantile ... 0.5 to 0.999");
  CHECK_THROWS_AS(s.learn({.is_on = true, .quantile = 0.4}, t0), config_error);
  CHECK(test::gist_of<config_error>([&] {
          (void)s.learn({.is_on = true, .most_of_slo = 0}, t0);
        }) == "learning: most_of_slo ... (0, 1]");
}

}  // namespace
}  // namespace cohort::deferred::learning_test
