// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/candidate.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/model_shard.hpp>
#include <cohort/deferred/rank.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <vector>

namespace cohort::deferred::sink_test {
namespace {
using namespace std::chrono_literals;
constexpr time_point t0{};
constexpr model_id m{0};

// The least that each sink can be.
struct least_scheduler_sink {
  request_list running;
  std::vector<const request*> dropped;
  void dispatch(batch&& b) noexcept { running.splice(running.end(), b.requests); }
  void drop(request& r) noexcept { dropped.push_back(&r); }
};
struct least_shard_sink : least_scheduler_sink {
  candidate best;
  int used = 0;
  int returned = 0;
  [[nodiscard]] pool_view pool(model_id) const noexcept { return {}; }
  void candidate_changed(model_id, const candidate& c) noexcept { best = c; }
  void grant_used(model_id, device_id, time_point, duration) noexcept { ++used; }
  void grant_returned(model_id, device_id) noexcept { ++returned; }
};
struct least_rank_sink {
  std::vector<device_id> granted;
  std::vector<model_id> waiting;
  void grant(const deferred::grant& g) noexcept { granted.push_back(g.device); }
  void waits(model_id id) noexcept { waiting.push_back(id); }
};
static_assert(scheduler_sink<least_scheduler_sink> && !shard_sink<least_scheduler_sink>);
static_assert(shard_sink<least_shard_sink> && scheduler_sink<least_shard_sink>);
static_assert(rank_sink<least_rank_sink> && !rank_sink<least_shard_sink>);

struct may_throw : least_scheduler_sink {
  void drop(request&) {}
};
static_assert(!scheduler_sink<may_throw>);  // It would end the program, not the call.

const model_config config{.latency = latency_curve{linear_latency{5ms, 1ms}, 4}, .slo = 12ms};
struct at_start : request {
  at_start() {
    model = m;
    arrival = t0;
    deadline = t0 + 12ms;
  }
};

TEST_CASE("the least scheduler sink is told of batches and of drops") {
  basic_scheduler<eager> scheduler;
  least_scheduler_sink sink;
  CHECK(scheduler.add_model(config) == m);
  scheduler.add_device(t0);
  at_start first;
  at_start second;
  scheduler.on_arrival(first, t0, sink);
  scheduler.advance(t0, sink);
  CHECK(sink.running.size() == 1);
  scheduler.on_arrival(second, t0, sink);
  scheduler.remove_model(m, t0, sink);
  CHECK(sink.dropped == std::vector<const request*>{&second});
  sink.running.clear();
}
TEST_CASE("the least shard sink is told of candidates, and answers grants") {
  basic_model_shard<eager> shard;
  least_shard_sink sink;
  shard.add_model(m, config);
  at_start r;
  shard.on_arrival(r, t0, sink);
  CHECK(sink.best.size == 1);
  shard.on_grant({m, device_id{0}, t0}, t0, sink);
  CHECK(sink.used == 1);
  shard.on_grant({m, device_id{0}, t0}, t0, sink);
  CHECK(sink.returned == 1);
  sink.running.clear();
}
TEST_CASE("the least rank sink is told of grants, and of what waits for a device") {
  rank ranking;
  least_rank_sink sink;
  ranking.reserve_models(1);
  ranking.on_candidate(m, {.size = 1, .exec_at = t0, .latest = t0 + 1ms, .urgency = t0}, t0);
  ranking.advance(t0, sink);
  CHECK(sink.granted.empty());
  CHECK(sink.waiting == std::vector<model_id>{m});
  ranking.add_device(device_id{0}, t0);
  ranking.advance(t0, sink);
  CHECK(sink.granted == std::vector<device_id>{device_id{0}});
  CHECK(sink.waiting.size() == 1);
}

}  // namespace
}  // namespace cohort::deferred::sink_test
