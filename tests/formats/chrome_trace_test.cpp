// SPDX-License-Identifier: Apache-2.0
#include <formats/chrome_trace.hpp>

#include <doctest/doctest.h>
#include <formats/json_reader.hpp>

#include <chrono>
#include <string>

namespace cohort::formats::chrome_trace_test {
namespace {
using namespace std::chrono_literals;

TEST_CASE("a trace names a row for each device and has one span for each batch") {
  sim::workload w;
  w.devices = 2;
  w.models.push_back({.name = "m \"x\"", .latency = linear_latency{5ms, 1ms}, .slo = 12ms});
  sim::run_result run;
  run.dispatches.push_back({.at = time_point{2250us},
                            .device = 1,
                            .model = 0,
                            .size = 4,
                            .first = 1,
                            .exec_at = time_point{2250us},
                            .latest = time_point{3ms},
                            .finish = time_point{11250us},
                            .requests = {1, 2, 3, 4}});
  const std::string file = "trace";
  const json_value v = parse_json(file, chrome_trace(w, run));
  const auto events = json_cursor{file, v}.require("traceEvents", "").items("events");
  REQUIRE(events.size() == 4);  // The process, two rows, one batch.
  CHECK(events[2].require("args", "").require("name", "").string() == "device 1");
  CHECK(events[2].require("tid", "").integer({}) == 2);
  CHECK(events[3].require("ph", "").string() == "X");
  CHECK(events[3].require("tid", "").integer({}) == 2);
  CHECK(events[3].require("ts", "").number({}) == 2250);
  CHECK(events[3].require("dur", "").number({}) == 9000);
  CHECK(events[3].require("name", "").string() == "m \"x\" x4");
}

}  // namespace
}  // namespace cohort::formats::chrome_trace_test
