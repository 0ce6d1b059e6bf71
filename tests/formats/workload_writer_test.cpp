// SPDX-License-Identifier: Apache-2.0
#include <formats/workload_writer.hpp>

#include <doctest/doctest.h>
#include <formats/workload_file.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace cohort::formats::workload_writer_test {
namespace {
using namespace std::chrono_literals;

sim::workload full() {
  sim::workload w;
  w.devices = 3;
  w.models = {{.name = "a \"quoted\"",
               .latency = table_latency{{{1, 5ms}, {4, 8ms}}},
               .slo = 20ms,
               .share = 30,
               .max_batch = 7,
               .queue_capacity = 64,
               .arrivals = sim::own_arrivals{sim::arrival_process::gamma, 0.4}},
              {.name = "b", .latency = linear_latency{1ms, 2ms}, .slo = 30ms, .share = 10}};
  w.arrivals = sim::arrival_process::uniform;
  w.rate = 40;
  w.policy = {"timeout:0.25", "head", "", "", "", "eager", "0.97"};
  w.warmup = 1s;
  w.measured = 5s;
  w.network = {.control = 10us, .data_per_request = 2us, .response = 300us, .wake_margin = 50us};
  w.response_margin = 2ms;
  w.jitter = {.sigma = 0.25, .tail = 3ms, .tail_share = 0.01};
  w.reality.noise = {.sigma = 0.2, .bias = 1.1, .bias_spread = 0.1, .correlation = 2ms};
  w.reality.models = {{.sigma = 0.1, .straggler_share = 0.01, .straggler_factor = 5}, {}};
  w.reality.timers = {.mean = 60us, .tail = 2ms, .tail_share = 0.01};
  w.reality.faults = {
      {.at = 1s, .device = device_id{2}, .kind = fault_kind::slow, .lasts = 2s, .factor = 2},
      {.device = device_id{0}, .kind = fault_kind::hang}};
  return w;
}

TEST_CASE("what was written is read as it was") {
  const sim::workload w = full();
  const std::string text = write_workload(w);
  const sim::workload r = parse_workload("w.json", text);
  CHECK(write_workload(r) == text);
  CHECK(r.devices == 3);
  CHECK(r.models[0].name == "a \"quoted\"");
  CHECK(r.models[0].latency_of(2) == 6ms);
  CHECK(r.models[0].queue_capacity == 64);
  CHECK(r.models[0].arrivals->shape == 0.4);
  CHECK(r.models[1].latency_of(3) == 7ms);
  CHECK(r.models[1].share == 10);
  CHECK(r.arrivals == sim::arrival_process::uniform);
  CHECK(r.rate == 40);
  CHECK(r.policy.name == "timeout:0.25");
  CHECK(r.policy.gather == "head");
  CHECK(r.policy.window == "eager");
  CHECK(r.policy.quantile == "0.97");
  CHECK(r.network.response == 300us);
  CHECK(r.told_delays().response == 2ms);
  CHECK(r.jitter.sigma == 0.25);
  CHECK(r.jitter.tail == 3ms);
  CHECK(r.reality.noise.correlation == 2ms);
  CHECK(r.reality.models[0].straggler_factor == 5);
  CHECK(r.reality.models[1].is_none());
  CHECK(r.reality.timers.tail == 2ms);
  REQUIRE(r.reality.faults.size() == 2);
  CHECK(r.reality.faults[0].lasts == 2s);
  CHECK(r.reality.faults[1].lasts == unbounded);
}

TEST_CASE("what sizes between measured ones take is written where it is not the default") {
  sim::workload w;
  const std::vector<latency_point> points{{1, 5ms}, {4, 8ms}};
  w.models = {{.name = "a", .latency = table_latency{points, between_sizes::step}, .slo = 30ms},
              {.name = "b", .latency = table_latency{points}, .slo = 30ms}};
  const std::string text = write_workload(w);
  const sim::workload r = parse_workload("w.json", text);
  CHECK(r.models[0].latency_of(2) == 8ms);
  CHECK(r.models[1].latency_of(2) == 6ms);
  CHECK(text.find("line") == std::string::npos);
}

TEST_CASE("popularities are written as shares, and what is not said is left out") {
  sim::workload w;
  w.models = {{.name = "a", .latency = linear_latency{1ms, 2ms}, .slo = 30ms},
              {.name = "b", .latency = linear_latency{1ms, 2ms}, .slo = 30ms}};
  w.shares = sim::popularity::zipf;
  w.zipf_exponent = 1;
  const std::string text = write_workload(w);
  for (const char* absent : {"rate_rps", "policy", "reality", "noise", "queue_capacity"}) {
    CAPTURE(absent);
    CHECK(text.find(absent) == std::string::npos);
  }
  CHECK(parse_workload("w.json", text).normalised_shares()[0] == doctest::Approx(2.0 / 3));
}

}  // namespace
}  // namespace cohort::formats::workload_writer_test
