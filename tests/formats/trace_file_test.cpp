// SPDX-License-Identifier: Apache-2.0
#include <formats/trace_file.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <chrono>
#include <string>

namespace cohort::formats::trace_file_test {
namespace {
using namespace std::chrono_literals;

std::vector<sim::model_spec> two_models() {
  std::vector<sim::model_spec> models;
  for (const char* name : {"a", "b"}) {
    models.push_back({.name = name, .latency = linear_latency{1ms, 1ms}, .slo = 10ms});
  }
  return models;
}

TEST_CASE("rows become instants of models") {
  const auto rows =
      parse_trace("t.csv", "model,time_ms,note\nb,0.75,x\na,0.75,y\na,2,\n", two_models());
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].at == time_point{750us});
  CHECK(rows[0].model == 1);
  CHECK(rows[2].at == time_point{2ms});
  CHECK(parse_trace("t.csv", "time_ms,model\n", two_models()).empty());
}

void check_refused(const std::string& text, const char* message) {
  CHECK_THROWS_WITH_AS((void)parse_trace("t.csv", text, two_models()), message, input_error);
}

TEST_CASE("a bad row is refused with line and column") {
  check_refused("time_ms\n1\n", "t.csv: line 1: missing: expected a column model");
  check_refused(
      "time_ms,model\n-1,a\n",
      "t.csv: line 2, time_ms: -1 is not allowed: expected a number from 0 to 10000000000");
  check_refused("time_ms,model\nnan,a\n",
                "t.csv: line 2, time_ms: \"nan\" is not allowed: expected a number from 0 to "
                "10000000000");
  check_refused("time_ms,model\n1e11,a\n",
                "t.csv: line 2, time_ms: 1e11 is not allowed: expected a number from 0 to "
                "10000000000");
  check_refused("time_ms,model\n,a\n",
                "t.csv: line 2, time_ms: \"\" is not allowed: expected a number from 0 to "
                "10000000000");
  check_refused("time_ms,model\n2,a\n1.5,a\n",
                "t.csv: line 3, time_ms: 1.5 is not allowed: expected at least 2, the time of the "
                "row before");
  check_refused("time_ms,model\n1,c\n",
                "t.csv: line 2, model: \"c\" is not allowed: expected the name of a model of the "
                "workload");
}

}  // namespace
}  // namespace cohort::formats::trace_file_test
