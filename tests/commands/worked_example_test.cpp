// SPDX-License-Identifier: Apache-2.0
// The worked example of the Symphony paper, section 3.3, through the command: ℓ(b) = b + 5 ms, SLO
// 12 ms, 3 devices, request i at 0.75 (i − 1) ms.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <set>
#include <string>

#include "commands/run_command.hpp"

namespace cohort::worked_example_test {
namespace {
using nlohmann::json;
using test::cohort_command;

const std::set<int> missing_three{13, 14, 15};

/// Runs the example with 48 requests, of which some are missing.
json run(const std::string& policy, const std::set<int>& missing) {
  std::string trace = "time_ms,model\n";
  for (int i = 1; i <= 48; ++i) {
    if (!missing.contains(i)) trace += std::to_string(0.75 * (i - 1)) + ",m\n";
  }
  const std::string csv = test::scratch("trace.csv");
  const std::string file = test::scratch("workload.json");
  test::spill(csv, trace);
  test::spill(file,
              json{{"devices", 3},
                   {"models", {{{"name", "m"}, {"alpha_ms", 1}, {"beta_ms", 5}, {"slo_ms", 12}}}},
                   {"arrivals", {{"process", "trace"}, {"file", csv}}},
                   {"warmup_s", 0},
                   {"duration_s", 1}}
                  .dump());
  const auto r = cohort_command("simulate " + file + " --policy " + policy +
                                " --gather head --dispatches --json");
  std::remove(csv.c_str());
  std::remove(file.c_str());
  CHECK(r.err.empty());
  REQUIRE(r.status == 0);
  return json::parse(r.out);
}

/// Which requests, by their numbers in the example, were in no batch.
std::set<int> dropped(const json& answer, const std::set<int>& missing) {
  std::set<int> sequences;
  for (const json& d : answer["dispatches"]) {
    for (const json& s : d["requests"]) sequences.insert(s.get<int>());
  }
  std::set<int> out;
  int sequence = 0;
  for (int i = 1; i <= 48; ++i) {
    if (!missing.contains(i) && !sequences.contains(++sequence)) out.insert(i);
  }
  return out;
}

TEST_CASE("request 4 fills the first batch, which starts at once and could start until 3 ms") {
  const json answer = run("deferred", {});
  const json& first = answer["dispatches"][0];
  CHECK(first["time_ms"] == 2.25);
  CHECK(first["device"] == 0);
  CHECK(first["model"] == "m");
  CHECK(first["size"] == 4);
  CHECK(first["first"] == 1);
  CHECK(first["exec_ms"] == 2.25);
  CHECK(first["latest_ms"] == 3.0);
  CHECK(first["finish_ms"] == 11.25);
  CHECK(first["requests"] == json{1, 2, 3, 4});
}

TEST_CASE("the devices take turns with batches of 4, and nothing is dropped") {
  const json answer = run("deferred", {});
  REQUIRE(answer["dispatches"].size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    CHECK(answer["dispatches"][i]["size"] == 4);
    CHECK(answer["dispatches"][i]["device"] == i % 3);
    CHECK(answer["dispatches"][i]["exec_ms"] == 2.25 + 3.0 * static_cast<double>(i));
  }
  CHECK(answer["dropped"] == 0);
  CHECK(answer["completed"] == 48);
}

TEST_CASE("with requests 13, 14 and 15 missing, deferred drops nothing") {
  const json answer = run("deferred", missing_three);
  CHECK(answer["dropped"] == 0);
  CHECK(dropped(answer, missing_three).empty());
}

TEST_CASE("with requests 13, 14 and 15 missing, eager falls to small batches and drops nine") {
  const json answer = run("eager", missing_three);
  CHECK(dropped(answer, missing_three) == std::set<int>{37, 38, 39, 40, 42, 45, 46, 47, 48});
}

}  // namespace
}  // namespace cohort::worked_example_test
