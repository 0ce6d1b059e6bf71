// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/plans/plan_simulation.hpp>

#include <doctest/doctest.h>

#include "packing/random_demand.hpp"

namespace cohort::sim::plan_simulation_test {
namespace {
using packing::gpulet;
using packing::latency_grid;
using packing::test::halves;
using packing::test::unit_model;

plan_simulation::source steady(double rate) {
  return {[rate](double) { return rate; }, rate};
}
gpulet one(std::uint32_t gpu, unsigned pct, std::uint32_t model, std::uint32_t batch, double rate) {
  return {.gpu = device_id{gpu},
          .size = device_share{pct},
          .duty_ms = 10,
          .models = {{.model = cohort::model_id{model}, .batch = batch, .rate_rps = rate}}};
}

TEST_CASE("every request ends once, and arrivals have the rate of their source") {
  const latency_grid g{{unit_model("a", 20), unit_model("b", 20)}, halves()};
  plan_simulation s{g, {steady(300), steady(100)}, std::nullopt, 1};
  s.install({one(0, 50, 0, 8, 300), one(0, 50, 1, 8, 100)});
  s.run(100'000);
  CHECK(s.now_ms() == 100'000);
  for (std::size_t m = 0; m < 2; ++m) {
    const plan_counts& c = s.counts()[m];
    const double rate = m == 0 ? 300 : 100;
    CHECK(std::abs(static_cast<double>(c.arrived) - 100 * rate) < 5 * std::sqrt(100 * rate));
    CHECK(c.completed + c.violated <= c.arrived);
    CHECK(c.completed + c.violated + 50 > c.arrived);  // The rest still waits.
    CHECK(c.violation_rate() < 0.05);
  }
}
TEST_CASE("an overloaded gpu-let still completes what it can carry") {
  // A half carries 4 / 10 a ms within 20 ms, twice the latency of a batch of 4: 400 of 800.
  const latency_grid g{{unit_model("a", 20)}, halves()};
  plan_simulation s{g, {steady(800)}, std::nullopt, 1};
  s.install({one(0, 50, 0, 4, 400)});
  s.run(100'000);
  const plan_counts& c = s.counts()[0];
  CHECK(static_cast<double>(c.completed) / 100 > 390);
  CHECK(c.violation_rate() < 0.52);
}
TEST_CASE("a model without a gpu-let loses its requests") {
  const latency_grid g{{unit_model("a", 20)}, halves()};
  plan_simulation s{g, {steady(100)}, std::nullopt, 1};
  s.run(1000);
  CHECK(s.counts()[0].violated == s.counts()[0].arrived);
  CHECK(s.counts()[0].violation_rate() == 1);
}
TEST_CASE("interference of the neighbours makes batches longer") {
  const latency_grid g{{unit_model("a", 20), unit_model("b", 20)}, halves()};
  const packing::interference_model heavy{.memory_other = 4, .constant = 1};
  double rate[2];
  for (const bool with : {false, true}) {
    plan_simulation s{g, {steady(380), steady(100)}, with ? std::optional{heavy} : std::nullopt, 1};
    s.install({one(0, 50, 0, 4, 380), one(0, 50, 1, 8, 100)});
    s.run(20'000);
    rate[with] = s.counts()[0].violation_rate();
  }
  CHECK(rate[1] > rate[0] + 0.2);
}
TEST_CASE("requests move on when their gpu-let goes, and stay where it stays") {
  const latency_grid g{{unit_model("a", 500)}, halves()};
  plan_simulation s{g, {steady(400)}, std::nullopt, 1};
  for (int i = 0; i < 200; ++i) {
    // From one device to the other and back, and from halves to wholes.
    s.install({one(i % 2 == 0 ? 0 : 1, i % 3 == 0 ? 50 : 100, 0, 8, 400)});
    s.run(50.0 * (i + 1));
  }
  const plan_counts& c = s.counts()[0];
  CHECK(c.violated == 0);
  CHECK(c.completed + 300 > c.arrived);
}
TEST_CASE("a rate that changes is followed by thinning") {
  const latency_grid g{{unit_model("a", 50)}, halves()};
  plan_simulation s{
      g, {{[](double at) { return at < 50'000 ? 50.0 : 200.0; }, 200}}, std::nullopt, 3};
  s.install({one(0, 100, 0, 8, 200)});
  s.run(50'000);
  const auto first = static_cast<double>(s.counts()[0].arrived);
  s.run(100'000);
  CHECK(std::abs(first - 2500) < 250);
  CHECK(std::abs(static_cast<double>(s.counts()[0].arrived) - first - 10'000) < 500);
}
TEST_CASE("runs of one seed are alike") {
  const latency_grid g{{unit_model("a", 20)}, halves()};
  const auto run = [&g](std::uint64_t seed) {
    plan_simulation s{g, {steady(300)}, std::nullopt, seed};
    s.install({one(0, 50, 0, 4, 300)});
    s.run(10'000);
    return s.counts()[0].arrived * 100'000 + s.counts()[0].violated;
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}
TEST_CASE("applications end with their last part, and are judged from end to end") {
  // L(1) = 2 ms on a whole device, 4 ms on half of it: so rare that none waits for another.
  const latency_grid g{{unit_model("a", 20), unit_model("b", 20), unit_model("c", 20)}, halves()};
  using graph = packing::request_graph;
  const auto leaf = [](std::uint32_t m) { return graph::model(cohort::model_id{m}); };
  const packing::plan p{one(0, 100, 0, 1, 1), one(1, 100, 1, 1, 1), one(2, 50, 2, 1, 1)};
  const auto in_time = [&](graph what, double slo_ms) {
    plan_simulation s{g, {}, std::nullopt, 2};
    s.add_application({.graph = std::move(what), .slo_ms = slo_ms}, steady(0.01));
    s.install(p);
    s.run(1e7);
    const plan_counts c = s.end_to_end()[0];
    CHECK(c.arrived > 60);
    CHECK(c.arrived == c.completed + c.violated);
    CHECK(s.counts()[0].arrived == c.arrived);
    CHECK(s.counts()[0].violated == 0);
    return c.violated == 0 ? 1 : c.completed == 0 ? 0 : -1;
  };
  CHECK(in_time(graph::series({leaf(0), leaf(1)}), 4.001) == 1);  // 2 + 2.
  CHECK(in_time(graph::series({leaf(0), leaf(1)}), 3.9) == 0);
  CHECK(in_time(graph::parallel({leaf(0), leaf(2)}), 4.001) == 1);  // max(2, 4).
  CHECK(in_time(graph::parallel({leaf(0), leaf(2)}), 3.9) == 0);
  CHECK(in_time(graph::series({leaf(0), graph::parallel({leaf(1), leaf(2)})}), 6.001) == 1);
  CHECK(in_time(graph::series({leaf(0), graph::parallel({leaf(1), leaf(2)})}), 5.9) == 0);
}
TEST_CASE("an application fails with any of its parts, once") {
  const latency_grid g{{unit_model("a", 20), unit_model("b", 20)}, halves()};
  using graph = packing::request_graph;
  plan_simulation s{g, {}, std::nullopt, 2};
  s.add_application({.graph = graph::parallel({graph::model(cohort::model_id{0}, 3),
                                               graph::model(cohort::model_id{1}, 2)}),
                     .slo_ms = 100},
                    steady(10));
  s.install({one(0, 100, 0, 8, 100)});  // Nothing serves b.
  s.run(100'000);
  const plan_counts c = s.end_to_end()[0];
  CHECK(c.violated == c.arrived);
  CHECK(s.counts()[0].arrived == 3 * c.arrived);
  CHECK(s.counts()[1].violated == 2 * c.arrived);
  CHECK_THROWS_AS(s.add_application({.graph = graph::model(cohort::model_id{2})}, steady(1)),
                  config_error);
}
}  // namespace
}  // namespace cohort::sim::plan_simulation_test
