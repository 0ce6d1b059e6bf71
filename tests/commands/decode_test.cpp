// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort decode`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::decode_test {
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
  CHECK(test::gist(r.err).find("standard input: line 2, output_tokens: bad value") !=
        std::string::npos);
}

TEST_CASE("without --json the answer is a table") {
  const test::command_result r = cohort_command("decode - --batch 2 --method baton", example);
  CHECK(r.status == 0);
  CHECK(r.out.find("baton (fifo) on 2 slots, 6 requests\n") == 0);
}

TEST_CASE("requests are served under SLOs by each policy that is named") {
  // Alone each prompt takes 15 ms; nine tokens are eight iterations of 11 ms.
  const std::string cost = test::scratch("decode_cost.json");
  std::ofstream{cost} << R"({"iteration_ms": 10, "per_token_ms": 1})";
  const std::string two = "id,prompt_tokens,output_tokens\na,10,9\nb,10,2\n";
  const std::string slos =
      "--cost " + cost + " --ttft-slo-ms 200 --inter-token-slo-ms 30 --prefill-ms 5 ";
  const json a = answer("--batch 1 --method baton --admission fifo,slo " + slos, two);
  REQUIRE(a["admission"].size() == 2);
  const json& fifo = a["admission"][0];
  CHECK(fifo["policy"] == "fifo");
  CHECK(fifo["good"] == 1);  // b has its first token at 25 ms, and no slot until 113.
  CHECK(fifo["first_token_in_time"] == 2);
  CHECK(fifo["between_tokens_in_time"] == 1);
  CHECK(fifo["first_token_ms"]["b"] == 25);
  const json& slo = a["admission"][1];
  CHECK(slo["good"] == 2);
  CHECK(slo["good_share"] == 1);
  CHECK(slo["dropped"] == 0);
  CHECK(slo["useful_tokens"] == 11);
  CHECK(slo["first_token_ms"]["b"] == 118);
  CHECK(a["iterations"] == 9);  // The counts of the method are as ever.
  const json c =
      answer("--batch 1 --method orca --admission slo --cost " + cost + " --ttft-slo-ms 10", two);
  CHECK(c["admission"][0]["dropped"] == 2);
  CHECK(c["admission"][0]["first_token_ms"]["a"].is_null());
  CHECK_FALSE(answer("--batch 1 --method orca", two).contains("admission"));
  for (const char* wrong : {"--method baton --admission slo", "--method baton --ttft-slo-ms 5",
                            "--method pd --admission slo --ttft-slo-ms 5",
                            "--method orca --admission eager --ttft-slo-ms 5",
                            "--method orca --admission slo, --ttft-slo-ms 5",
                            "--method orca --admission slo --ttft-slo-ms 0",
                            "--method orca --admission slo --ttft-slo-ms 5 --prefill-ms -1"}) {
    CAPTURE(wrong);
    const test::command_result r =
        cohort_command(std::string{"decode - --batch 1 "} + wrong, example);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(std::ranges::count(r.err, '\n') == 1);
  }
}

}  // namespace
}  // namespace cohort::decode_test
