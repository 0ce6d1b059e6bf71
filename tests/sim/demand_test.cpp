// SPDX-License-Identifier: Apache-2.0
#include <cohort/sim/demand.hpp>

#include <doctest/doctest.h>

#include <chrono>

namespace cohort::sim::demand_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("an advisor sees latencies and SLOs with the delays that policies are told of") {
  workload w;
  w.models.push_back({.name = "a", .latency = linear_latency{5ms, 1ms}, .slo = 25ms});
  w.models.push_back({.name = "b", .latency = linear_latency{2ms, 1ms}, .slo = 3ms});
  w.network = {.control = 2ms, .data_per_request = 1ms, .response = 9ms};
  w.response_margin = 4ms;
  demand_of_models demand{w};
  const auto& models = demand.at([](std::size_t i) { return i == 0 ? 10.0 : 20.0; });
  REQUIRE(models.size() == 2);
  CHECK((*models[0].latency)(3) == 13ms);  // 5 + 3 + 2 + 3.
  CHECK(models[0].slo == 21ms);
  CHECK(models[0].rate == 10);
  CHECK(models[1].slo > 0ms);  // Though nothing is left of it.
  CHECK(models[1].rate == 20);
}

}  // namespace
}  // namespace cohort::sim::demand_test
