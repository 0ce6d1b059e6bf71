// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort cluster`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <string>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::cluster_test {
namespace {
using nlohmann::json;
using test::cohort_command;

const std::string workload =
    R"({"devices": 4, "warmup_s": 1, "duration_s": 4,
        "models": [{"name": "m", "alpha_ms": 10, "beta_ms": 50, "slo_ms": 250}]})";
const std::string prompts =
    "arrival_ms,prompt_tokens,output_tokens\n0,1000,10\n0,1000,10\n5,2000,20\n900,10,1\n";

json answer(const std::string& arguments, const std::string& input) {
  const test::command_result r = cohort_command("cluster --json " + arguments, input);
  INFO(r.err);
  CHECK(r.err.empty());
  REQUIRE(r.status == 0);
  CHECK(cohort_command("cluster --json " + arguments, input).out == r.out);
  return json::parse(r.out);
}
std::string complaint(const std::string& arguments, const std::string& input = workload) {
  const test::command_result r = cohort_command("cluster " + arguments, input);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  return r.err.substr(0, r.err.find('\n'));
}

TEST_CASE("routes are searched for their goodput, in order") {
  const json a =
      answer("- --routes round-robin,picker,engine --policy deferred --seeds 1 --precision 0.05",
             workload)["cluster"];
  REQUIRE(a.size() == 3);
  CHECK(a[0]["route"] == "round-robin");
  CHECK(a[0]["policy"] == "eager");
  CHECK(a[1]["policy"] == "deferred");
  CHECK(a[1]["goodput_rps"] == a[2]["goodput_rps"]);
  CHECK(a[1]["goodput_rps"].get<double>() > a[0]["goodput_rps"].get<double>());
  CHECK(a[1]["run"]["devices"] == 4);
}
TEST_CASE("at one rate the requests in time are counted") {
  const json a = answer("- --routes picker,random --rate 300 --endpoints 2 --seeds 2", workload);
  for (const json& r : a["cluster"]) {
    CHECK(r["run"]["offered_rps"] == 300);
    CHECK(r["goodput_rps"].get<double>() < 300);
  }
}
TEST_CASE("prompts are played on all routes") {
  const json a = answer("--prompts - --endpoints 2 --ttft-slo-ms 300", prompts);
  CHECK(a["endpoints"] == 2);
  CHECK(a["requests"] == 4);
  REQUIRE(a["cluster"].size() == 5);
  for (const json& r : a["cluster"]) {
    CHECK(r["good"].get<int>() + r["first_token_late"].get<int>() + r["tokens_slow"].get<int>() +
              r["shed"].get<int>() ==
          4);
    CHECK(r["good_share"] == r["good"].get<int>() / 4.0);
  }
  CHECK(cohort_command("cluster --prompts - --routes picker", prompts).out.find("picker") !=
        std::string::npos);
}
TEST_CASE("what cannot be run is refused") {
  CHECK(test::gist{complaint("")} == "cohort: ... WORKLOAD or --prompts ...");
  CHECK(test::gist{complaint("- --prompts -")} == "cohort: ... WORKLOAD or --prompts ...");
  CHECK(test::gist{complaint("- --routes fastest")} ==
        "cohort: ... --routes: ... fastest ... picker ...");
  CHECK(test::gist{complaint("- --policy shepherd")} == "cohort: ... shepherd ...");
  CHECK(test::gist{complaint("- --policy eager,deferred")} ==
        "cohort: ... --policy: ... one policy ...");
  CHECK(test::gist{complaint("- --endpoints 0")} == "cohort: ... --endpoints: ... 0 ...");
  CHECK(test::gist{complaint("- --speed 2")} == "cohort: ... --speed: ... 2 ... --prompts ...");
  CHECK(test::gist{complaint("--prompts - --routes engine", prompts)} ==
        "... --routes: ... engine ...");
  CHECK(test::gist{
            complaint("--prompts -", "arrival_ms,prompt_tokens,output_tokens\n0,200001,1\n")} ==
        "... 200002 ... 200000 ...");
}

}  // namespace
}  // namespace cohort::cluster_test
