// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/rivals/nexus.hpp>

#include <doctest/doctest.h>

#include <map>

#include "rival_cases.hpp"

namespace cohort::sim::nexus_test {
namespace {
using namespace rival_cases;

const auto make = [](const rival_facts& f) { return nexus{f}; };

rival_facts facts(std::uint32_t devices, const std::vector<std::pair<duration, double>>& models) {
  rival_facts f{.models = {}, .devices = devices};
  for (const auto& [slo, rate] : models) {
    const latency_curve l{linear_latency{5ms, 1ms}, 32};
    f.models.push_back({.run = l, .sent = l, .slo = slo, .rate = rate});
  }
  return f;
}

TEST_CASE("the packing is for all devices, and serves models in proportion to their rates") {
  const rival_facts f = facts(8, {{20ms, 30}, {40ms, 60}});
  const nexus n{f};
  std::map<std::uint32_t, double> rate;
  std::map<std::uint32_t, int> devices;
  for (const packing::gpulet& g : n.packed()) {
    for (const packing::placed_model& m : g.models) rate[m.model.value()] += m.rate_rps;
    ++devices[g.gpu.value()];
  }
  CHECK(devices.size() == 8);
  CHECK(rate[1] == doctest::Approx(2 * rate[0]).epsilon(0.01));
  // A device that has the second model alone does 15 in 20 ms, 750/s; the first 5 in 10, 500/s.
  // Of 8, x with the first: 500 x / 1 = 750 (8 - x) / 2, x = 3.43, so at most 1714.
  CHECK(rate[0] < 1714);
  CHECK(rate[0] > 0.8 * 1714);
}

TEST_CASE("requests go to their model's devices in turns, and stay there") {
  // Devices serve at once what comes: in turns 0, 1, 0, 1. The third waits for the first although
  // the second is free before.
  const workload w = trace_of(2, {usual_model()}, {{0, 0}, {1, 0}, {2, 0}, {8, 0}});
  CHECK(played(w, make) == "0:m x1 0-6, 1:m x1 1-7, 0:m x1 6-12, 1:m x1 8-14, 0 dropped, 0 late");
}

TEST_CASE("a device serves its models in turns") {
  model_spec other = usual_model();
  other.name = "o";
  const workload w = trace_of(1, {usual_model(), other}, {{0, 0}, {1, 0}, {2, 0}, {3, 1}});
  CHECK(played(w, make) == "0:m x1 0-6, 0:o x1 6-12, 0:m x2 12-19, 0 dropped, 0 late");
}

TEST_CASE("a model of which two batches do not fit its SLO is served, if alone and at once") {
  model_spec brief = usual_model();
  brief.slo = 8ms;  // Nothing is packed: 2 l(1) = 12.
  const workload w = trace_of(2, {brief}, {{0, 0}, {1, 0}, {2, 0}});
  CHECK(played(w, make) == "0:m x1 0-6, 1:m x1 1-7, 1 dropped, 0 late");
}

TEST_CASE("with another load comes another packing, and those that wait go along") {
  workload w;
  w.devices = 4;
  w.models = {usual_model(), usual_model()};
  w.models[1].name = "o";
  w.warmup = 0s;
  w.measured = 40s;
  // The second model comes 12 s later: until then, and for up to an epoch, it is on all devices.
  w.arrivals = arrival_process::trace;
  for (int ms = 0; ms < 40'000; ++ms) {
    w.trace.push_back({time_point{} + ms * 1ms, ms < 12'000 || ms % 4 == 0 ? 0U : 1U});
  }
  const run_result r = simulate_rival(w, make, {.rate = 1}, [](time_point) {});
  CHECK(r.arrived == 40'000);
  CHECK(r.completed + r.dropped + r.late == r.arrived);
  CHECK(r.per_model[1].completed > 0.9 * static_cast<double>(r.per_model[1].arrived));
}

}  // namespace
}  // namespace cohort::sim::nexus_test
