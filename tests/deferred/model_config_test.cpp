// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/model_config.hpp>

#include <cohort/core/error.hpp>
#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <doctest/doctest.h>

#include <vector>

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

TEST_CASE("a negative longest wait is refused") {
  basic_scheduler<frontrun, head> s;
  CHECK_THROWS_WITH_AS(s.add_model({.latency = latency_curve{linear_latency{5ms, 1ms}, 16},
                                    .slo = 12ms,
                                    .longest_wait = -1ns}),
                       "model_config: longest_wait must be at least 0", config_error);
}

}  // namespace
}  // namespace cohort::deferred::model_config_test
