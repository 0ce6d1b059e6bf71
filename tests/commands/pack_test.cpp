// SPDX-License-Identifier: Apache-2.0
// The contract of `cohort pack`.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include <registry/pack_algorithm.hpp>
#include <support/complaint.hpp>
#include <support/profile_folder.hpp>
#include "commands/run_command.hpp"

namespace cohort::pack_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;

const std::string with_rules =
    cohort::registry::packers_with(&cohort::registry::packer_traits::takes_rules);

test::gist reason(const json& answer) { return test::gist{answer["reason"].get<std::string>()}; }

struct fixture {
  test::profile_folder folder;

  [[nodiscard]] command_result pack(const std::string& options, const std::string& input) const {
    return cohort_command("pack --profiles " + folder.path() + " " + options, input);
  }
  [[nodiscard]] json answer(const std::string& options, const std::string& input,
                            int status = 0) const {
    const command_result r = pack(options + " --json", input);
    INFO(r.err);
    CHECK(r.err.empty());
    REQUIRE(r.status == status);
    return json::parse(r.out);
  }
  void refuses(const std::string& options, const std::string& input,
               const std::string& complaint) const {
    const command_result r = pack(options, input);
    CAPTURE(options);
    CAPTURE(input);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(test::gist(r.err) == "cohort: " + complaint + "\n");
  }
};
const std::string demand = R"({"gpus":1,"sizes":[50,100],"demand":{"a":400,"b":100}})";

TEST_CASE_FIXTURE(fixture, "pack prints every field of the contract") {
  const json a = answer("- --algorithm elastic", demand);
  CHECK(a["algorithm"] == "elastic");
  CHECK(a["schedulable"] == true);
  CHECK(a["status"] == "feasible");
  CHECK(a["bound"].is_null());
  CHECK(a["reason"].is_null());
  CHECK(a["seconds"].is_number());
  CHECK(a["gpus"] == 1);
  CHECK(a["max_gpulets_per_gpu"] == 2);
  CHECK(a["sizes"] == json{50, 100});
  CHECK(a["interference"] == false);
  CHECK(a["slo_rule"] == "own");
  CHECK(a["demand"] == json{{"a", 400}, {"b", 100}});
  double rate = 0;
  for (const json& g : a["gpulets"]) {
    CHECK(g["gpu"] == 0);
    CHECK(g["duty_ms"].get<double>() > 0);
    for (const json& m : g["models"]) rate += m["rate"].get<double>();
  }
  CHECK(rate == doctest::Approx(500));
  // Without --json: a picture and a table.
  const command_result text = pack("- --algorithm elastic", demand);
  CHECK(text.status == 0);
  CHECK(text.out.find("gpu 0   [") != std::string::npos);
}
TEST_CASE_FIXTURE(fixture,
                  "what every algorithm schedules passes --verify; what is bent does not") {
  for (const char* options :
       {"squishy", "squishy-even", "self-tuning", "elastic", "elastic-int", "ideal", "exact",
        "exact --interference", "exact --slo-rule sum", "elastic --interference",
        "elastic --order load --knee gain", "elastic --slo-rule sum", "elastic --fit worst",
        "elastic-int --fit first", "elastic --interference --pad none --order rate-slo",
        "elastic-int --pad none --knee curvature"}) {
    CAPTURE(options);
    const json a = answer(std::string{"- --algorithm "} + options, demand);
    REQUIRE(a["schedulable"] == true);
    CHECK(answer("--verify -", a.dump())["valid"] == true);
  }
  for (const char* options : {"elastic", "exact --interference"}) {
    const json a = answer(std::string{"- --algorithm "} + options, demand);
    CHECK(pack("--verify -", a.dump()).out == "valid: every constraint holds\n");
    json bent = a;
    bent["gpulets"][0]["models"][0]["rate"] = 1;
    const json verdict = answer("--verify -", bent.dump(), 1);
    CHECK(verdict["valid"] == false);
    CHECK(verdict["violations"].size() == 1);
    json slow = a;
    slow["gpulets"][0]["duty_ms"] = 39.9;
    CHECK(answer("--verify -", slow.dump(), 1)["violations"].size() >= 1);
  }
}
TEST_CASE_FIXTURE(fixture, "a demand that is too large is told with exit status 1 and a reason") {
  const std::string much = R"({"gpus":1,"sizes":[50,100],"demand":{"a":4000}})";
  const json a = answer("- --algorithm elastic", much, 1);
  CHECK(a["schedulable"] == false);
  CHECK(a["status"] == "unknown");
  CHECK(reason(a) == "a: 3111.11 of 4000 ... no gpu-let");
  CHECK(a["gpulets"] == json::array());
  CHECK(test::gist(pack("- --algorithm elastic", much).out) ==
        "elastic: not schedulable (unknown): a: 3111.11 of 4000 ...\n");
  const json memory =
      answer("- --algorithm elastic", R"({"gpus":9,"memory_mb":650,"demand":{"b":1}})", 1);
  CHECK(memory["status"] == "infeasible");
  CHECK(reason(memory) == "b: ... 700 MB ... 650");
  for (const char* algorithm : {"squishy", "self-tuning", "elastic", "ideal", "exact"}) {
    const json together = answer(std::string{"- --algorithm "} + algorithm,
                                 R"({"gpus":1,"memory_mb":1299,"demand":{"a":1,"b":1}})", 1);
    CHECK(together["status"] == "infeasible");
    CHECK(reason(together) == "... models ... 1300 MB ... 1299");
  }
  const json slo =
      answer("- --algorithm squishy", R"({"gpus":9,"slo_ms":{"b":3.5},"demand":{"b":1}})", 1);
  CHECK(slo["status"] == "infeasible");
  CHECK(slo["slo_ms"] == json{{"b", 3.5}});
  const json own = answer("- --algorithm squishy", R"({"gpus":9,"demand":{"b":1,"a":2}})", 0);
  CHECK(own["slo_ms"] == json{{"a", 20}, {"b", 40}});
}
TEST_CASE_FIXTURE(fixture, "exact proves what cannot be, and bounds what can") {
  // Two devices carry 8 / 9 a ms each.
  const auto with = [](const char* rate) {
    return std::string{R"({"gpus":2,"sizes":[50,100],"demand":{"b":)"} + rate + "}}";
  };
  json a = answer("- --algorithm exact", with("1600"));
  CHECK(a["status"] == "feasible");
  CHECK(a["bound"].get<double>() == doctest::Approx(16000 / 9.0 / 1600).epsilon(1e-3));
  a = answer("- --algorithm exact", with("1800"), 1);
  CHECK(a["status"] == "infeasible");
  CHECK(a["bound"].get<double>() < 1);
  CHECK(reason(a) == "no plan ... demand: ... devices ...");
  // One model's memory excludes every multiple.
  a = answer("- --algorithm exact", R"({"gpus":9,"memory_mb":650,"demand":{"b":1}})", 1);
  CHECK(a["bound"] == 0);
}
TEST_CASE_FIXTURE(fixture, "what exact proves of the padded problem, it says of no other") {
  // Neighbours add 20 % of a and b each; alone on whole devices nothing is padded.
  const std::string tight = R"({"gpus":1,"sizes":[50],"demand":{"a":300,"b":420}})";
  const json a = answer("- --algorithm exact --interference", tight, 1);
  CHECK(a["status"] == "infeasible");
  CHECK(reason(a) == "no plan ... demand: ... worst-neighbour padding ... --pad none ...");
  const json memory = answer("- --algorithm exact --interference",
                             R"({"gpus":9,"memory_mb":650,"demand":{"b":1}})", 1);
  CHECK(reason(memory) == "b: ... 700 MB ... 650");
}
TEST_CASE_FIXTURE(fixture, "with a burst margin the bound is still one of the demand") {
  // b within 40 ms: 1000 + sqrt(1000 / 0.04) = 1158.1 of 1777.8 a second: 1.535. Four times the
  // demand would be 4000 + 2 * 158.1: the margin grows with the root. 1.7778 without it is less
  // than 1.535 squared.
  json a = answer("- --algorithm exact --burst-margin 1",
                  R"({"gpus":2,"sizes":[50,100],"demand":{"b":1000}})");
  CHECK(a["bound"].get<double>() == doctest::Approx(16 / 9.0).epsilon(1e-3));
  a = answer("- --algorithm exact --burst-margin 3",
             R"({"gpus":2,"sizes":[50,100],"demand":{"b":1600}})", 1);
  CHECK(a["status"] == "infeasible");
  CHECK(a["bound"].get<double>() == doctest::Approx(16000 / 9.0 / 2200).epsilon(1e-3));
  CHECK(reason(a) == "no plan ... demand: ... devices ... burst margin");
}
TEST_CASE_FIXTURE(fixture, "exact keeps to its time limit, and heuristics come before it") {
  const json a = answer("- --algorithm exact --time-limit-s 1e-9", demand);
  CHECK(a["status"] == "feasible");
  CHECK(a["bound"].get<double>() >= 1);  // It takes no time.
  CHECK(answer("- --algorithm exact --time-limit-s 1e-9",
               R"({"gpus":2,"sizes":[50,100],"demand":{"b":1800}})", 1)["status"] == "infeasible");
  CHECK(answer("- --algorithm exact --time-limit-s 1e-9",
               R"({"gpus":9,"memory_mb":650,"demand":{"b":1}})", 1)["status"] == "infeasible");
}
TEST_CASE_FIXTURE(fixture, "models that are not asked for block nothing") {
  std::string latency = test::slurp(folder.path() + "/latency.csv");
  folder.write("latency.csv", latency + "a,1,60,3,x\na,8,60,12,x\n");
  const json a = answer("- --algorithm elastic", R"({"gpus":1,"sizes":[60],"demand":{"a":100}})");
  CHECK(a["gpulets"][0]["size"] == 60);
  CHECK(answer("--verify -", a.dump())["valid"] == true);
  CHECK(answer("- --algorithm elastic", R"({"gpus":1,"demand":{"a":100}})")["sizes"] ==
        json{20, 50, 60, 100});
  refuses("- --algorithm elastic", R"({"gpus":1,"sizes":[60],"demand":{"a":100,"b":1}})",
          "standard input: $.sizes[0]: bad value");
}
TEST_CASE_FIXTURE(fixture, "what an algorithm or a simulation cannot take is refused") {
  refuses("- --algorithm squishy-even", R"({"gpus":1,"sizes":[20,100],"demand":{"a":1}})",
          "standard input: $.sizes: bad value");
  refuses("- --algorithm squishy", R"({"gpus":1,"sizes":[20,50],"demand":{"a":1}})",
          "standard input: $.sizes: bad value");
  refuses("- --algorithm squishy-even", R"({"gpus":1,"max_gpulets_per_gpu":1,"demand":{"a":1}})",
          "standard input: $.max_gpulets_per_gpu: bad value");
  // Nothing of the first line is printed.
  refuses("--scenarios - --algorithm squishy",
          R"({"gpus":1,"demand":{"a":1}})"
          "\n"
          R"({"gpus":1,"sizes":[20,50],"demand":{"a":1}})",
          "standard input: line 2: $.sizes: bad value");
  refuses("- --algorithm elastic --simulate-s 1000000", R"({"gpus":1,"demand":{"a":400}})",
          "--simulate-s: bad value");
}
TEST_CASE_FIXTURE(fixture, "--verify refuses options that would change nothing") {
  const std::string plan = answer("- --algorithm elastic", demand).dump();
  for (const char* option :
       {"--algorithm nonsense", "--algorithm elastic", "--slo-rule bogus", "--burst-margin -4",
        "--order rate", "--pad none", "--simulate-s 5", "--seed 7", "--time-limit-s 3"}) {
    const std::string text = option;
    const std::size_t gap = text.find(' ');
    refuses("--verify - " + text, plan, text.substr(0, gap) + ": bad value");
  }
  refuses("--verify - --interference", plan, "--interference: ... --verify");
}
TEST_CASE_FIXTURE(fixture, "scenarios are answered line by line, and one that fails makes it 1") {
  const std::string lines = demand + "\n\n" + R"({"gpus":1,"demand":{"a":4000}})" + "\n" + demand;
  const command_result r = pack("--scenarios - --algorithm elastic", lines);
  CHECK(r.status == 1);
  std::vector<json> answers;
  for (std::size_t at = 0; at < r.out.size();) {
    const std::size_t end = r.out.find('\n', at);
    answers.push_back(json::parse(r.out.substr(at, end - at)));
    at = end + 1;
  }
  REQUIRE(answers.size() == 3);
  CHECK(answers[0]["schedulable"] == true);
  CHECK(answers[1]["schedulable"] == false);
  CHECK(answers[0]["gpulets"] == answers[2]["gpulets"]);
  CHECK(pack("--scenarios - --algorithm elastic", demand).status == 0);
  refuses("--scenarios - --algorithm elastic", demand + "\n{\"gpus\":0}",
          "standard input: line 2: $.gpus: bad value");
}
TEST_CASE_FIXTURE(fixture, "a rate of 0 is absent, and an empty plan serves nothing") {
  const json a = answer("- --algorithm elastic", R"({"gpus":1,"demand":{"a":0}})");
  CHECK(a["gpulets"] == json::array());
  CHECK(a["schedulable"] == true);
}
TEST_CASE_FIXTURE(fixture, "--simulate-s runs the plan, and --burst-margin makes it hold") {
  const std::string tight = R"({"gpus":1,"sizes":[50,100],"demand":{"a":395,"b":350}})";
  const json bare = answer("- --algorithm elastic --simulate-s 60", tight);
  CHECK(bare["simulated"]["seconds"] == 60);
  CHECK(bare["simulated"]["per_model"].size() == 2);
  const json wide = answer("- --algorithm elastic --simulate-s 60 --burst-margin 1",
                           R"({"gpus":2,"sizes":[50,100],"demand":{"a":395,"b":350}})");
  CHECK(wide["burst_margin"] == 1);
  CHECK(wide["simulated"]["violation_rate"].get<double>() <
        bare["simulated"]["violation_rate"].get<double>());
  CHECK(wide["demand"] == json{{"a", 395}, {"b", 350}});
  CHECK(answer("--verify -", wide.dump())["valid"] == true);
  CHECK(answer("- --algorithm elastic --simulate-s 9 --seed 5", tight)["simulated"] ==
        answer("- --algorithm elastic --simulate-s 9 --seed 5", tight)["simulated"]);
}
TEST_CASE_FIXTURE(fixture, "--svg writes a picture") {
  const std::string file = test::scratch("plan.svg");
  REQUIRE(pack("- --algorithm elastic --svg " + file, demand).status == 0);
  const std::string svg = test::slurp(file);
  std::remove(file.c_str());
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("GPU 0") != std::string::npos);
}
TEST_CASE_FIXTURE(fixture, "bad demands are refused with their place") {
  const auto bad = [this](const std::string& text, const std::string& complaint) {
    refuses("- --algorithm elastic", text, "standard input: " + complaint);
  };
  bad(R"({"gpus":1})", "$.demand: missing");
  bad(R"({"gpus":1.5,"demand":{"a":1}})", "$.gpus: bad value");
  bad(R"({"gpus":1,"demand":{"a":-1}})", "$.demand.a: bad value");
  bad(R"({"gpus":1,"demand":{"c":1}})", R"($.demand: bad value)");
  bad(R"({"gpus":1,"sizes":[50,50],"demand":{"a":1}})", "$.sizes[1]: bad value");
  bad(R"({"gpus":1,"sizes":[40],"demand":{"a":1}})", R"($.sizes[0]: bad value)");
  bad(R"({"gpus":1,"slo_ms":{"a":1},"demand":{"a":1}})", "$.slo_ms.a: bad value");
  bad(R"({"gpus":1,"memory_mb":0,"demand":{"a":1}})", "$.memory_mb: bad value");
}
TEST_CASE_FIXTURE(fixture, "bad profiles are refused with their place") {
  const std::string dir = folder.path();
  const auto bad = [&](const std::string& file, const std::string& text,
                       const std::string& complaint) {
    const std::string before = test::slurp(dir + "/" + file);
    folder.write(file, text);
    refuses("- --algorithm elastic-int", demand, dir + "/" + complaint);
    folder.write(file, before);
  };
  bad("slo.csv", "model,slo_ms\na,20\na,20\n", R"(slo.csv: line 3, model: bad value)");
  bad("slo.csv", "model\na\n", "slo.csv: line 1, slo_ms: missing");
  bad("slo.csv", "model,slo_ms\n", "slo.csv: no rows ... at least one model");
  bad("slo.csv", "model,slo_ms\na,1.5\nb,40\n", R"(slo.csv: model "a", slo_ms: bad value)");
  bad("latency.csv", "model,batch,partition_pct,latency_ms\na,2,100,1\nb,1,100,1\n",
      "latency.csv: model a: ... batch 1 ... missing ... above 0 ...");
  bad("latency.csv", "model,batch,partition_pct,latency_ms\nc,1,100,1\n",
      R"(latency.csv: line 2, model: bad value)");
  bad("util.csv", "model,batch,l2_util_pct,dram_util_pct\na,1,20,40\n",
      R"(util.csv: model "b": missing)");
  bad("interference.csv", "c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n",
      "interference.csv: no rows ... one row ...");
}
TEST_CASE_FIXTURE(fixture, "bad usage is refused") {
  refuses("- --algorithm magic", demand, "--algorithm: bad value");
  refuses("-", demand, "--algorithm: missing");
  refuses("--algorithm elastic", demand,
          "pack: ... DEMAND.json, --scenarios FILE.jsonl ... --verify FILE");
  refuses("- --algorithm squishy --order rate", demand, "--order: bad value");
  refuses("- --algorithm elastic-int --pad none --fit best", demand, R"(--fit: bad value)");
  refuses("- --algorithm exact --fit best", demand, "--fit: bad value");
  refuses("- --algorithm elastic --fit snug", demand, R"(--fit: bad value)");
  refuses("- --algorithm elastic --pad worst-neighbour", demand, R"(--pad: bad value)");
  refuses("- --algorithm elastic --pad none", demand, R"(--pad: bad value)");
  refuses("- --algorithm elastic --time-limit-s 3", demand, "--time-limit-s: bad value");
  refuses("- --algorithm elastic --slo-rule both", demand, R"(--slo-rule: bad value)");
}
TEST_CASE_FIXTURE(fixture, "applications become demands of their models, judged from end to end") {
  // a, then b twice: as request_graph's own test, 8 of 20 ms and 12 of them. b's SLO becomes 12.
  const std::string graph = R"({"series":["a",{"model":"b","times":2}]})";
  const std::string input =
      R"({"gpus":4,"sizes":[50,100],"demand":{"a":10},"applications":{"traffic":{"slo_ms":20,"rate":50,"graph":)" +
      graph + "}}}";
  const json a = answer("- --algorithm elastic --simulate-s 50", input);
  CHECK(a["schedulable"] == true);
  CHECK(a["demand"] == json{{"a", 60}, {"b", 100}});
  CHECK(a["slo_ms"]["a"].get<double>() == doctest::Approx(8).epsilon(0.01));
  CHECK(a["slo_ms"]["b"].get<double>() == doctest::Approx(12).epsilon(0.01));
  const double rate = a["simulated"]["per_application"]["traffic"].get<double>();
  CHECK(rate < 0.2);
  CHECK(answer("--verify -", a.dump())["valid"] == true);
  // Without any demand of its own.
  CHECK(answer("- --algorithm elastic",
               R"({"gpus":1,"applications":{"x":{"slo_ms":40,"rate":1,"graph":"b"}}})")["demand"] ==
        json{{"b", 1}});
  for (const std::string bad : {R"({"parallel":[]})", R"({"model":"z"})",
                                R"({"model":"a","times":0})", R"({"other":1})", R"(7)"}) {
    CAPTURE(bad);
    const command_result r =
        pack("- --algorithm elastic",
             R"({"gpus":1,"applications":{"x":{"slo_ms":40,"rate":1,"graph":)" + bad + "}}}");
    CHECK(r.status == 2);
    CHECK(r.err.find("applications") != std::string::npos);
  }
  const command_result tight =
      pack("- --algorithm elastic",
           R"({"gpus":1,"applications":{"x":{"slo_ms":3,"rate":1,"graph":"a"}}})");
  CHECK(tight.status == 2);
  CHECK(tight.err.find("too small") != std::string::npos);
}
}  // namespace
}  // namespace cohort::pack_test
