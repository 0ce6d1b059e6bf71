// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort decode`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>

#include "cli/run_command.hpp"

namespace cohort {
namespace {
using nlohmann::json;
using test::cohort_command;

const std::string example =
    "id,prompt_tokens,output_tokens\na,5,3\nb,2,6\nc,7,1\nd,3,4\ne,6,2\nf,4,5\n";

json answer(const std::string& arguments, const std::string& input = example) {
  const test::command_result r = cohort_command("decode - --json " + arguments, input);
  INFO(r.err);
  CHECK(r.err.empty());
  REQUIRE(r.status == 0);
  return json::parse(r.out);
}

TEST_CASE("decode prints the worked example exactly") {
  struct row {
    const char* method;
    int iterations, held, drain, padding, inserts, grows, peak;
    double waste;
  };
  for (const row& e :
       {row{"run-to-completion", 15, 9, 0, 9, 0, 0, 20, 0.6011},
        row{"pd", 12, 9, 0, 3, 0, 0, 20, 0.6011}, row{"shaping", 13, 0, 5, 20, 6, 0, 30, 0.4912},
        row{"orca", 13, 0, 5, 0, 6, 0, 13, 0}, row{"baton", 9, 0, 3, 3, 5, 2, 16, 0.29}}) {
    const json a = answer(std::string{"--batch 2 --method "} + e.method);
    CHECK(a["method"] == e.method);
    CHECK(a["iterations"] == e.iterations);
    CHECK(a["useful_tokens"] == 21);
    CHECK(a["held"] == e.held);
    CHECK(a["starved"] == 0);
    CHECK(a["drain"] == e.drain);
    CHECK(a["padding_tokens"] == e.padding);
    CHECK(a["inserts"] == e.inserts);
    CHECK(a["grows"] == e.grows);
    CHECK(a["peak_columns"] == e.peak);
    CHECK(std::round(a["kv_read_waste"].get<double>() * 1e4) / 1e4 == e.waste);
    CHECK(a["columns_moved"] == 0);  // Nothing outgrows 64 columns.
    CHECK(a["columns_written"].get<int>() > 0);
    CHECK(a["seconds"] == e.iterations / 1000.0);
    CHECK(a["finish_ms"].size() == 6);
    for (const char* name : {"time_to_first_token_ms", "time_between_tokens_ms"}) {
      CHECK(a[name]["p50"].is_number());
      CHECK(a[name]["p99"].is_number());
    }
  }
}

TEST_CASE("the kernel, the pick and the cost are heard") {
  CHECK(answer("--batch 2 --method baton --kernel ragged")["kv_read_waste"] == 0);
  CHECK(answer("--batch 2 --method baton --pick best-fit")["grows"] == 4);
  const std::string file = test::scratch("cost.json");
  test::spill(file, R"({"iteration_ms": 2})");
  CHECK(answer("--batch 2 --method baton --cost " + file)["seconds"] == 0.018);
  std::remove(file.c_str());
}

TEST_CASE("--trace writes a span for each stay and a name for each slot") {
  const std::string file = test::scratch("decode_trace.json");
  (void)answer("--batch 2 --method baton --trace " + file);
  const json trace = json::parse(test::slurp(file));
  std::remove(file.c_str());
  const json& events = trace["traceEvents"];
  CHECK(std::ranges::count_if(events, [](const json& e) { return e["ph"] == "X"; }) == 5);
  CHECK(std::ranges::count_if(events, [](const json& e) { return e["ph"] == "M"; }) == 3);
}

TEST_CASE("bad usage and bad input exit with 2 and one line") {
  for (const char* arguments :
       {"--batch 0 --method baton", "--batch 2 --method batton",
        "--batch 2 --method baton --pick x", "--batch 2 --method baton --kernel x",
        "--batch 2 --method baton --cost missing.json", "--batch 2 --method baton --trace -",
        "--batch 2", "--batch 2 --method baton --cost -"}) {
    CAPTURE(arguments);
    const test::command_result r = cohort_command(std::string{"decode - "} + arguments, example);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(std::ranges::count(r.err, '\n') == 1);
  }
  const test::command_result r =
      cohort_command("decode - --batch 2 --method pd", "id,prompt_tokens,output_tokens\na,1,0\n");
  CHECK(r.status == 2);
  CHECK(r.err.find("standard input: line 2, output_tokens: 0 is not allowed") != std::string::npos);
}

TEST_CASE("without --json the answer is a table") {
  const test::command_result r = cohort_command("decode - --batch 2 --method baton", example);
  CHECK(r.status == 0);
  CHECK(r.out.find("baton (fifo) on 2 slots, 6 requests\n") == 0);
}

}  // namespace
}  // namespace cohort
