// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/simulation.hpp>

#include <doctest/doctest.h>

#include <cohort/deferred/adaptive.hpp>
#include <cohort/deferred/policies.hpp>
#include <cohort/deferred/pooled_scheduler.hpp>
#include <cohort/deferred/scheduler.hpp>

#include <chrono>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <support/complaint.hpp>
#include <tuple>
#include <vector>

namespace cohort::sim::simulation_test {
namespace {
using namespace std::chrono_literals;

/// Two models on one device, with a trace of (ms, model).
workload two_on_one(std::initializer_list<std::pair<int, std::uint32_t>> trace) {
  workload w;
  w.devices = 1;
  w.models = {{.name = "a", .latency = linear_latency{2ms, 1ms}, .slo = 10ms},
              {.name = "b", .latency = linear_latency{4ms, 2ms}, .slo = 20ms}};
  w.arrivals = arrival_process::trace;
  for (const auto& [ms, model] : trace) w.trace.push_back({time_point{1ms * ms}, model});
  w.warmup = 0s;
  w.measured = 1s;
  return w;
}

template <class Scheduler>
run_result run(const workload& w, Scheduler scheduler, double rate = 0, std::uint64_t seed = 1) {
  return simulation<Scheduler>{
      w, std::move(scheduler), {.rate = rate, .seed = seed, .record_dispatches = true}}
      .run();
}

TEST_CASE("two models share a device by the earliest last start, worked by hand") {
  // a: deadlines 10, 11. With both, frontrun = 10 − ℓ(3) = 5, latest = 10 − ℓ(2) = 6.
  // b: deadline 22. frontrun = 22 − ℓ(2) = 14, latest = 22 − ℓ(1) = 16.
  const run_result r = run(two_on_one({{0, 0}, {1, 0}, {2, 1}}), deferred::scheduler{});
  REQUIRE(r.dispatches.size() == 2);
  const dispatch_record& a = r.dispatches[0];
  CHECK(a.model == 0);
  CHECK(a.size == 2);
  CHECK(a.at == time_point{5ms});
  CHECK(a.exec_at == time_point{5ms});
  CHECK(a.latest == time_point{6ms});
  CHECK(a.finish == time_point{9ms});
  const dispatch_record& b = r.dispatches[1];
  CHECK(b.model == 1);
  CHECK(b.at == time_point{14ms});
  CHECK(b.latest == time_point{16ms});
  CHECK(b.finish == time_point{20ms});
  CHECK(r.completed == 3);
  CHECK(r.latency_p50_ms == 9);  // 9, 8 and 18 ms.
  CHECK(r.busy_fraction == doctest::Approx(0.010));
}

TEST_CASE("a device that becomes free takes the candidate that must start first") {
  // eager: b starts at 0 until 6. At 6 both wait: a must start by 11 − 3 = 8, b by 21 − 6 = 15.
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  const run_result r = run(two_on_one({{0, 1}, {1, 1}, {1, 0}}), eager{});
  REQUIRE(r.dispatches.size() == 3);
  CHECK(r.dispatches[1].model == 0);
  CHECK(r.dispatches[1].at == time_point{6ms});
  CHECK(r.dispatches[1].finish == time_point{9ms});
  CHECK(r.dispatches[2].model == 1);
  CHECK(r.dispatches[2].at == time_point{9ms});
  CHECK(r.completed == 3);
}

TEST_CASE("a request that cannot be served in time is dropped, not late") {
  // Two models of ℓ(1) = 3 and SLO 10: with four single-request batches in turn the last cannot.
  using eager = deferred::basic_scheduler<deferred::eager, deferred::head>;
  // b runs 0 to 6 and (a, deadline 10) runs 6 to 9; a second a at 0 shares its batch; nothing late.
  const run_result fine = run(two_on_one({{0, 1}, {0, 0}, {0, 0}}), eager{});
  CHECK(fine.completed == 3);
  // b of 4 requests runs 1 to 13 (it must start by 8): the a's of 2 ms are hopeless then.
  const run_result bad = run(two_on_one({{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 0}, {2, 0}}),
                             deferred::basic_scheduler<deferred::eager, deferred::head>{});
  CHECK(bad.completed + bad.dropped == 7);
  CHECK(bad.late == 0);
}

TEST_CASE("the network delays a batch's start and its result") {
  workload w = two_on_one({{0, 0}});
  w.network.control = 1ms;
  w.network.data_per_request = 500us;
  w.network.response = 250us;
  const run_result r = run(w, deferred::basic_scheduler<>{w.network});
  REQUIRE(r.dispatches.size() == 1);
  // Deadline 10 − 0.25; frontrun = 9.75 − ℓ(2) = 5.75; sent 1.5 ms earlier.
  CHECK(r.dispatches[0].exec_at == time_point{5750us});
  CHECK(r.dispatches[0].at == time_point{4250us});
  CHECK(r.dispatches[0].finish == time_point{8750us});
  CHECK(r.latency_p50_ms == doctest::Approx(9.0));
  CHECK(r.completed == 1);
}

TEST_CASE("what policies leave for a result may be more than it takes") {
  // SLO 10, l(1) = 3: deferred starts a lone request when a second could no longer join, at 10 - 4
  // less the 2 that it leaves; its result is there 1 after the end.
  workload w = two_on_one({{0, 0}});
  w.network.response = 1ms;
  w.response_margin = 2ms;
  const run_result r = run(w, deferred::scheduler{w.told_delays()});
  REQUIRE(r.dispatches.size() == 1);
  CHECK(r.dispatches[0].exec_at == time_point{4ms});
  CHECK(r.latency_p50_ms == 8);
  CHECK(r.completed == 1);
}

TEST_CASE("a queue of a given capacity refuses what is more, which counts as dropped") {
  workload w = two_on_one({{0, 0}, {0, 0}, {0, 0}, {0, 0}});
  w.models[0].queue_capacity = 2;
  const run_result r = run(w, deferred::scheduler{});
  CHECK(r.dropped == 2);
  CHECK(r.completed == 2);
  CHECK(r.served_p99_ms < 10);
  CHECK(r.latency_p99_ms == infinitely_late);
}

TEST_CASE("a burst of thousands at one instant is not refused by a full queue") {
  workload w = two_on_one({});
  for (int i = 0; i < 20000; ++i) w.trace.push_back({time_point{1ms}, 0});
  const run_result r = run(w, deferred::scheduler{});
  CHECK(r.arrived == 20000);
  CHECK(r.completed + r.dropped == 20000);
  CHECK(r.completed == 8);  // 2 + 8 <= 10.
}

workload random_workload(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>{low, high}(random);
  };
  workload w;
  w.devices = static_cast<std::uint32_t>(pick(1, 6));
  const int models = pick(1, 5);
  for (int i = 0; i < models; ++i) {
    const duration alpha = 10us * pick(0, 300);
    const duration beta = 10us * pick(1, 1000);
    model_spec m{.name = std::to_string(i),
                 .latency = linear_latency{beta, alpha},
                 .slo = (alpha + beta) * pick(2, 12),
                 .share = 1.0 * pick(1, 10)};
    m.max_batch = static_cast<std::uint32_t>(pick(0, 1) * pick(1, 40));
    if (m.max_batch == 0 && alpha == 0us) m.max_batch = 64;
    w.models.push_back(std::move(m));
  }
  constexpr arrival_process processes[] = {arrival_process::poisson, arrival_process::gamma,
                                           arrival_process::uniform};
  w.arrivals = processes[pick(0, 2)];
  w.shape = 0.2;
  w.warmup = 100ms;
  w.measured = 500ms;
  return w;
}

/// What must hold of any run, whatever the policy.
void check_conserved(const workload& w, const run_result& r) {
  CHECK(r.completed + r.late + r.dropped + r.refused == r.arrived);
  CHECK(r.late == 0);  // Devices are as fast as profiled: who runs is in time.
  CHECK(r.busy_fraction <= 1.0 + 1e-9);
  std::vector<time_point> free_at(w.devices, time_point{});
  std::vector<std::set<std::uint64_t>> seen(w.models.size());
  for (const dispatch_record& d : r.dispatches) {
    CHECK(d.exec_at >= free_at[d.device]);  // One batch at a time.
    CHECK(d.exec_at >= d.at);
    CHECK(d.exec_at <= d.latest);
    CHECK(d.finish - d.exec_at == w.models[d.model].latency_of(d.size));
    CHECK(d.requests.size() == d.size);
    CHECK(d.first == d.requests.front());
    for (std::uint64_t s : d.requests) CHECK(seen[d.model].insert(s).second);  // Once.
    free_at[d.device] = d.finish;
  }
}

TEST_CASE("every measured request ends once, and no device runs two batches, under any policy") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random{seed};
    const workload w = random_workload(random);
    const double rate = std::uniform_real_distribution<double>{20, 3000}(random);
    CAPTURE(rate);
    check_conserved(w, run(w, deferred::scheduler{}, rate, seed));
    check_conserved(
        w, run(w, deferred::basic_scheduler<deferred::frontrun, deferred::head>{}, rate, seed));
    check_conserved(
        w, run(w, deferred::basic_scheduler<deferred::eager, deferred::head>{}, rate, seed));
    check_conserved(w, run(w, deferred::make_adaptive_scheduler(), rate, seed));
  }
}

/// Loses every second request.
struct forgetful : deferred::scheduler {
  forgetful() : deferred::scheduler{} {}
  template <deferred::scheduler_sink Sink>
  void on_arrival(request& r, time_point now, Sink& sink) noexcept {
    if (++arrivals % 2 == 0) return;
    deferred::scheduler::on_arrival(r, now, sink);
  }
  std::uint32_t arrivals = 0;
};

TEST_CASE("a run whose scheduler loses a request ends with an error that names the request") {
  // The trace ends: nothing is left to happen.
  CHECK(test::gist_of<lost_request>([&] {
          (void)run(two_on_one({{0, 0}, {1, 1}}), forgetful{});
        }) == "simulation ... \"b\" ... 1000 us never ends");
  workload w = two_on_one({});
  w.arrivals = arrival_process::poisson;  // Others arrive for ever.
  CHECK_THROWS_AS(run(w, forgetful{}, 200), lost_request);
}

TEST_CASE("equal seeds give equal runs") {
  std::mt19937_64 random{7};
  const workload w = random_workload(random);
  const run_result a = run(w, deferred::scheduler{}, 700, 3);
  const run_result b = run(w, deferred::scheduler{}, 700, 3);
  CHECK(a.arrived == b.arrived);
  CHECK(a.latency_p99_ms == b.latency_p99_ms);
  REQUIRE(a.dispatches.size() == b.dispatches.size());
  for (std::size_t i = 0; i < a.dispatches.size(); ++i) {
    CHECK(a.dispatches[i].exec_at == b.dispatches[i].exec_at);
    CHECK(a.dispatches[i].requests == b.dispatches[i].requests);
  }
}

/// What was sent of a model: when, which size, until when, and where but for `first` devices.
auto sent_of(const run_result& r, std::uint32_t model, std::uint32_t first) {
  std::vector<std::tuple<time_point, std::uint32_t, time_point, std::uint32_t>> out;
  for (const dispatch_record& d : r.dispatches) {
    if (d.model == model) out.emplace_back(d.at, d.size, d.finish, d.device - first);
  }
  return out;
}
TEST_CASE("a pool decides what it would decide alone, and a model stays in its own") {
  std::mt19937_64 random{3};
  workload both = two_on_one({});
  both.devices = 5;
  both.pools = {{.name = "x", .devices = 2, .models = {1}},
                {.name = "y", .devices = 3, .models = {0}}};
  workload a = two_on_one({});
  a.models.pop_back();
  a.devices = 3;
  workload b = two_on_one({});
  b.models.erase(b.models.begin());
  b.devices = 2;
  time_point at{};
  for (int i = 0; i < 1500; ++i) {
    at += 1us * (random() % 700);
    const auto model = static_cast<std::uint32_t>(random() % 2);
    both.trace.push_back({at, model});
    (model == 0 ? a : b).trace.push_back({at, 0});
  }
  const run_result joined = run(both, deferred::pooled_scheduler{});
  CHECK(joined.dropped > 0);
  CHECK(sent_of(joined, 0, 2) == sent_of(run(a, deferred::scheduler{}), 0, 0));
  CHECK(sent_of(joined, 1, 0) == sent_of(run(b, deferred::scheduler{}), 0, 0));
  // Advice is the sum over pools, each of which shares nothing.
  const auto needed = [](const workload& w) {
    return run(w, deferred::scheduler{}).advice.devices + w.devices;
  };
  CHECK(joined.advice.devices + 5 == needed(a) + needed(b));
}
TEST_CASE("batches take as long on a device as its class says") {
  workload w = two_on_one({{0, 0}, {0, 1}});
  w.devices = 2;
  w.classes = {{.name = "old", .count = 1, .factor = 2},
               {.name = "new", .count = 1, .factor = 0.5}};
  const run_result r = run(w, deferred::basic_scheduler<deferred::eager, deferred::head>{});
  REQUIRE(r.dispatches.size() == 2);
  for (const dispatch_record& d : r.dispatches) {
    const duration alone = d.model == 0 ? 3ms : 6ms;
    CHECK(d.finish - d.exec_at == (d.device == 0 ? 2 * alone : alone / 2));
  }
}

}  // namespace
}  // namespace cohort::sim::simulation_test
