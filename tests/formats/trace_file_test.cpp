// SPDX-License-Identifier: Apache-2.0
#include <formats/trace_file.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>

#include <chrono>
#include <string>
#include <support/complaint.hpp>

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
  CHECK(test::gist_of<input_error>([&] { (void)parse_trace("t.csv", text, two_models()); }) ==
        message);
}

TEST_CASE("a bad row is refused with line and column") {
  check_refused("time_ms\n1\n", "t.csv: line 1, model: missing");
  check_refused("time_ms,model\n-1,a\n", "t.csv: line 2, time_ms: bad value");
  check_refused("time_ms,model\nnan,a\n", "t.csv: line 2, time_ms: bad value");
  check_refused("time_ms,model\n1e11,a\n", "t.csv: line 2, time_ms: bad value");
  check_refused("time_ms,model\n,a\n", "t.csv: line 2, time_ms: bad value");
  check_refused("time_ms,model\n2,a\n1.5,a\n", "t.csv: line 3, time_ms: bad value");
  check_refused("time_ms,model\n1,c\n", "t.csv: line 2, model: bad value");
}

}  // namespace
}  // namespace cohort::formats::trace_file_test
