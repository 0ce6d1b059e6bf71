// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort replan`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <vector>

#include <registry/pack_algorithm.hpp>
#include <support/complaint.hpp>
#include <support/profile_folder.hpp>
#include "commands/run_command.hpp"

namespace cohort::replan_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;

struct fixture {
  test::profile_folder folder;

  [[nodiscard]] command_result replan(const std::string& options, const std::string& input) const {
    return cohort_command("replan --profiles " + folder.path() + " " + options, input);
  }
  [[nodiscard]] json answer(const std::string& options, const std::string& input) const {
    const command_result r = replan(options + " --json", input);
    INFO(r.err);
    REQUIRE(r.status == 0);
    CHECK(r.err.empty());
    return json::parse(r.out);
  }
  void refuses(const std::string& options, const std::string& input,
               const std::string& complaint) const {
    const command_result r = replan(options, input);
    CAPTURE(options);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(test::gist(r.err) == "cohort: " + complaint + "\n");
  }
};
const std::string demand = R"({"gpus":2,"sizes":[20,50,100],"demand":{"a":300,"b":200}})";

TEST_CASE_FIXTURE(fixture, "partitions in use follow two waves, and what is counted adds up") {
  const json a = answer("- --algorithm elastic --length-s 600 --reorganization-s 5", demand);
  CHECK(a["algorithm"] == "elastic");
  CHECK(a["period_s"] == 20);
  CHECK(a["reorganization_s"] == 5);
  REQUIRE(a["periods"].size() == 30);
  CHECK(a["arrived"].get<double>() > 100'000);
  CHECK(a["violation_rate"].get<double>() < 0.05);  // Waves three times as steep as by default.
  CHECK(a["violated"].get<double>() /
            (a["completed"].get<double>() + a["violated"].get<double>()) ==
        doctest::Approx(a["violation_rate"].get<double>()));
  double arrived = 0;
  int plans = 0;
  for (const json& p : a["periods"]) {
    for (const char* m : {"a", "b"}) arrived += 20 * p["arrived_rps"][m].get<double>();
    plans += p["replanned"].get<bool>() ? 1 : 0;
  }
  CHECK(arrived == doctest::Approx(a["arrived"].get<double>()));
  const auto ended = [](const json& x) {
    return x["completed"].get<int>() + x["violated"].get<int>() + x["waiting"].get<int>();
  };
  CHECK(ended(a) == a["arrived"].get<int>());
  for (const json& m : a["per_model"]) CHECK(ended(m) == m["arrived"].get<int>());
  CHECK(plans == a["plans"]);
  CHECK(plans >= 3);
  // The second wave is higher than the first, and both than what is between and before them.
  const auto used = [&a](std::size_t period) {
    return a["periods"][period]["used_pct"].get<int>();
  };
  CHECK(used(22) > used(13));
  CHECK(used(6) > used(0));
  CHECK(used(22) >= used(6));
  CHECK(a["used_pct"]["most"] == used(22));

  const std::string brief = "- --algorithm elastic --length-s 60 --reorganization-s 5";
  const json once = answer(brief, demand);
  CHECK(answer(brief, demand) == once);
  CHECK(answer(brief + " --seed 2", demand)["arrived"] != once["arrived"]);
}

TEST_CASE_FIXTURE(fixture, "a load of one's own, and a drawing of what it did") {
  folder.write("load.csv", "time_s,part\n0,1\n100,1\n101,0\n");
  const std::string svg = folder.path() + "/waves.svg";
  const json a = answer("- --algorithm elastic --length-s 200 --phase-s 0 --load " + folder.path() +
                            "/load.csv --svg " + svg,
                        demand);
  REQUIRE(a["periods"].size() == 10);
  CHECK(a["periods"][2]["arrived_rps"]["a"].get<double>() == doctest::Approx(300).epsilon(0.1));
  CHECK(a["periods"][2]["arrived_rps"]["b"].get<double>() == doctest::Approx(200).epsilon(0.1));
  CHECK(a["periods"][9]["arrived_rps"]["a"] == 0);
  CHECK(a["periods"][9]["used_pct"].get<int>() < a["periods"][2]["used_pct"].get<int>());
  const std::string drawn = test::slurp(svg);
  CHECK(drawn.starts_with("<svg "));
  CHECK(drawn.ends_with("</svg>\n"));
  // As many bars of violations as periods.
  std::size_t bars = 0;
  for (std::size_t at = drawn.find("#cc3311"); at != std::string::npos;
       at = drawn.find("#cc3311", at + 1)) {
    ++bars;
  }
  CHECK(bars == 10);
  CHECK(drawn.find(">a<") != std::string::npos);

  const command_result text = replan(
      "- --algorithm elastic-int --length-s 200 --load " + folder.path() + "/load.csv", demand);
  CHECK(text.status == 0);
  CHECK(text.out.find("elastic-int on 2 GPUs, 200 s") == 0);
}

TEST_CASE("the example profiles: packers that share devices serve the demand, and a margin pays") {
  const std::string profiles = std::string{COHORT_EXAMPLES} + "/profiles";
  const std::string input = profiles + "/demand.json --profiles " + profiles;
  for (const char* algorithm : {"squishy-even", "self-tuning", "elastic", "elastic-int", "ideal"}) {
    CAPTURE(algorithm);
    const command_result r = cohort_command("pack " + input + " --json --algorithm " + algorithm);
    REQUIRE(r.status == 0);
    CHECK(cohort_command("pack --verify - --profiles " + profiles, r.out).status == 0);
  }
  double before = 0.01;
  for (const char* margin : {"0", "0.5", "1"}) {
    const command_result r =
        cohort_command("replan " + input +
                       " --algorithm elastic-int --json --length-s 600 --burst-margin " + margin);
    REQUIRE(r.status == 0);
    const auto violated = json::parse(r.out)["violation_rate"].get<double>();
    CHECK(violated < before);
    before = violated;
  }
}

TEST_CASE_FIXTURE(fixture,
                  "what no plan can serve is left out with its reason, the rest is served") {
  const std::string run = "- --algorithm elastic --length-s 60 --phase-s 0";
  const json all = answer(run, demand);
  CHECK(all["planned_part"] == 1);
  CHECK(all["reason"].is_null());
  CHECK(all["left_out"] == json::array());

  // A device carries 889 a second of either model.
  const json far = answer(run, R"({"gpus":1,"sizes":[20,50,100],"demand":{"a":20000,"b":10000}})");
  CHECK(far["planned_part"].get<double>() > 0);
  CHECK(far["planned_part"].get<double>() < 0.1);
  CHECK(test::gist(far["reason"].get<std::string>()) == "... no gpu-let ...");
  CHECK(far["left_out"].empty());
  for (const json& p : far["periods"]) {
    CHECK(p["completed_rps"].get<double>() > 300);
    CHECK(p["planned_part"].get<double>() < 0.2);
  }

  const std::string tight =
      R"({"gpus":2,"sizes":[20,50,100],"slo_ms":{"b":3},"demand":{"a":300,"b":1}})";
  const json without = answer(run, tight);
  CHECK(without["planned_part"] == 1);
  REQUIRE(without["left_out"].size() == 1);
  CHECK(without["left_out"][0]["name"] == "b");
  CHECK(test::gist(without["left_out"][0]["reason"].get<std::string>()) ==
        "b: ... latency ... 100 % ... 4 ms ... SLO of 3 ms");
  // Steep waves: as many are late as if there were no other model.
  const json alone = answer(run, R"({"gpus":2,"sizes":[20,50,100],"demand":{"a":300}})");
  CHECK(without["per_model"][0]["completed"].get<double>() >
        0.97 * alone["per_model"][0]["completed"].get<double>());
  CHECK(without["per_model"][1]["completed"] == 0);
  CHECK(test::gist(replan(run, tight).out).has_line("... left out: b (b: ... 4 ms"));
}

TEST_CASE_FIXTURE(fixture, "bad options and loads are refused") {
  refuses("- --algorithm elastic --reorganization-s 20", demand, "--reorganization-s: bad value");
  refuses("- --algorithm elastic --length-s 0", demand, "--length-s: bad value");
  refuses("- --algorithm elastic --period-s 2000", demand, "--period-s: bad value");
  refuses("- --algorithm elastic --margin -1", demand, "--margin: bad value");
  refuses("- --algorithm best", demand, "--algorithm: bad value");
  refuses("- --algorithm elastic --load -", demand, "--load: bad value");
  refuses("- --algorithm elastic --length-s 60", R"({"gpus":1,"demand":{"a":1e9}})",
          "standard input: $.demand: bad value");
  folder.write("load.csv", "time_s,part\n1,1\n1,2\n");
  const std::string load = folder.path() + "/load.csv";
  refuses("- --algorithm elastic --load " + load, demand, load + ": line 3, time_s: bad value");
  folder.write("load.csv", "time_s,part\n");
  refuses("- --algorithm elastic --load " + load, demand,
          load + ": no rows ... at least one point");
  refuses("- --algorithm elastic", R"({"gpus":1,"demand":{"x":1}})",
          "standard input: $.demand: bad value");
}

}  // namespace
}  // namespace cohort::replan_test
