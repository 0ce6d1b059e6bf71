// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/cluster/cluster_simulation.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

namespace cohort::sim::cluster_simulation_test {
namespace {
using namespace std::chrono_literals;

/// The least a router can be: sends all to endpoint 1, one by one, and ends them as they come back.
struct one_by_one {
  std::deque<request*> sent{};
  std::vector<time_point>* heard = nullptr;

  template <class Cluster>
  void on_arrival(request& r, Cluster& c) {
    deferred::batch b{};
    b.model = r.model;
    b.requests.push_back(r);
    c.run(1, b);
    b.requests.clear();
    sent.push_back(&r);
  }
  template <class Cluster>
  void on_complete(std::uint32_t endpoint, Cluster& c) {
    CHECK(endpoint == 1);
    heard->push_back(c.now());
    request& r = *sent.front();
    sent.pop_front();
    c.end(r, c.now() <= r.deadline ? outcome::completed : outcome::late);
  }
  template <class Cluster>
  void advance(Cluster&) {}
  [[nodiscard]] time_point next_wake() const { return never; }
};
static_assert(gateway_router<one_by_one>);

TEST_CASE("batches of an endpoint run one after another, behind the network's delays") {
  workload w;
  w.devices = 2;
  w.models = {{.name = "m", .latency = linear_latency{5ms, 1ms}, .slo = 15ms}};
  w.arrivals = arrival_process::trace;
  w.trace = {{time_point{0ms}, 0}, {time_point{1ms}, 0}, {time_point{30ms}, 0}};
  w.warmup = 0ms;
  w.measured = 40ms;
  w.network = {.control = 2ms, .data_per_request = 1ms, .response = 4ms};
  std::vector<time_point> heard;
  const run_result r = simulate_cluster(
      w, [&](const workload&) { return one_by_one{{}, &heard}; }, {}, [](time_point) {});
  // Ready at 3, ends at 9; the next then; the last is ready at 33. Each is heard of 4 ms later.
  CHECK(heard == std::vector<time_point>{time_point{13ms}, time_point{19ms}, time_point{43ms}});
  CHECK(r.completed == 2);
  CHECK(r.late == 1);
  CHECK(r.busy_fraction == doctest::Approx(18.0 / 80));
  CHECK(r.devices_used == 1);
}

}  // namespace
}  // namespace cohort::sim::cluster_simulation_test
