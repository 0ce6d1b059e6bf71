// SPDX-License-Identifier: Apache-2.0
// `cohort report`: from the answers of `cohort load` and a profile to a page.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <support/complaint.hpp>
#include <utility>

#include "commands/run_command.hpp"

namespace cohort::report_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;

/// A folder of its own, removed at the end.
struct folder {
  folder() { std::filesystem::create_directory(path); }
  ~folder() { std::filesystem::remove_all(path); }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  std::string path = test::scratch("report");
};

/// What `cohort load --json` prints, for one model and three seconds.
json answers() {
  json quantiles = json::array();
  for (int q = 1; q <= 100; ++q) quantiles.push_back(q * 0.1);
  const json latency = {{"p50", 5}, {"p90", 9}, {"p99", 9.9}, {"max", 10}};
  return {
      {"executor", "host executor, 1 device"},
      {"offered_rps", 10},
      {"duration_s", 3},
      {"goodput_rps", 9.5},
      {"bad_rate", 0.05},
      {"latency_ms", latency},
      {"batch_p50", 2},
      {"busy_fraction", 0.4},
      {"sent", 30},
      {"good", 28},
      {"send_delay_p99_ms", 0.25},
      {"verified", {{"answers", 4}, {"wrong", 0}}},
      {"per_model", {{{"name", "lenet<1>"}, {"slo_ms", 20}, {"latency_quantiles_ms", quantiles}}}},
      {"batches", {{{"up_to", 1}, {"count", 3}}, {{"up_to", 2}, {"count", 9}}}},
      {"good_per_second", {9, 10, 9}},
      {"sent_per_second", {10, 10, 10}}};
}

command_result report(const folder& f, const json& run,
                      const std::string& profile = "lenet,1,100,0.5\nlenet,2,100,0.8\n",
                      const std::string& more = "") {
  test::spill(f.path + "/latency.csv", "model,batch,partition_pct,latency_ms\n" + profile);
  test::spill(f.path + "/run.json", run.dump());
  return cohort_command("report --profile " + f.path + " --run eager=" + f.path +
                        "/run.json --out " + f.path + "/page.html" + more);
}

TEST_CASE("a report is one page that says what was measured") {
  const folder f;
  const command_result r = report(f, answers());
  INFO(r.err);
  CHECK(r.status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("lenet&lt;1&gt;") != std::string::npos);  // Names are text, never markup.
  CHECK(page.find("lenet<1>") == std::string::npos);
  CHECK(page.find("host executor, 1 device") != std::string::npos);
  CHECK(page.find("<svg") != std::string::npos);
  CHECK(page.find("http://") ==
        page.find("http://www.w3.org"));  // It needs nothing from elsewhere.
}
TEST_CASE("a run against a server that does not describe itself can be reported") {
  const folder f;
  json run = answers();
  run["executor"] = "";
  run["batches"] = json::array();
  CHECK(report(f, run).status == 0);
}
TEST_CASE("numbers that cannot be drawn are refused, and no page is left") {
  const std::pair<const char*, const char*> bad[] = {
      {"/per_model/0/slo_ms", "$.per_model[0].slo_ms"},
      {"/good_per_second/1", "$.good_per_second[1]"},
      {"/batches/0/count", "$.batches[0].count"},
      {"/latency_ms/p99", "$.latency_ms.p99"}};
  for (const auto& [where, named] : bad) {
    for (const double value : {1.7e308, -1.0}) {
      const folder f;
      CAPTURE(where);
      json run = answers();
      run[json::json_pointer{where}] = value;
      const command_result r = report(f, run);
      CHECK(r.status == 2);
      CHECK(r.err.find(named) != std::string::npos);
      CHECK(test::gist(r.err).ends_with(": bad value\n"));
      CHECK_FALSE(std::filesystem::exists(f.path + "/page.html"));
    }
  }
  const folder f;
  CHECK(report(f, answers(), "lenet,1,100,1e308\nlenet,2,100,1.7e308\n").status == 2);
}
TEST_CASE("drawings are put into the page; what is none is refused") {
  const folder f;
  const std::string profile = "lenet,1,100,0.5\nlenet,2,100,0.8\n";
  test::spill(f.path + "/plan.svg", "<?xml version=\"1.0\"?><svg id=\"plan\"></svg>");
  test::spill(f.path + "/other.txt", "no drawing");
  const auto with = [&](const std::string& figure) {
    return report(f, answers(), profile, " --figure \"" + figure + "\"");
  };
  CHECK(with("A <plan>=" + f.path + "/plan.svg").status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.find("<h2>A &lt;plan&gt;</h2><div class=\"figure\"><svg id=\"plan\">") !=
        std::string::npos);
  CHECK(with("plan").status == 2);
  CHECK(with("plan=" + f.path + "/none.svg").status == 2);
  const command_result r = with("plan=" + f.path + "/other.txt");
  CHECK(r.status == 2);
  CHECK(r.err.find("not a drawing") != std::string::npos);
}
/// `answers` at another rate, for `--sweep`.
void spill_run(const std::string& file, int sent, int good) {
  json run = answers();
  run["sent"] = sent;
  run["good"] = good;
  test::spill(file, run.dump());
}

TEST_CASE("offered, in time and bad of a page agree: offered is what was sent") {
  const folder f;
  json run = answers();
  run["offered_rps"] = 12;  // What was asked for.
  run["goodput_rps"] = 9.5;
  CHECK(report(f, run).status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.find("<td>10.0</td><td>9.5</td><td>5.00 %</td>") != std::string::npos);
}
TEST_CASE("runs at rising rates are one series, and the page says who loses") {
  const folder f;
  const std::string profile = "lenet,1,100,0.5\nlenet,2,100,0.8\n";
  spill_run(f.path + "/low.json", 300, 300);
  spill_run(f.path + "/high.json", 600, 540);
  spill_run(f.path + "/best.json", 600, 600);
  test::spill(f.path + "/simulated.json",
              R"({"offered_rps": 200, "bad_rate": 0.1, "served_ms": {"p50": 5, "p99": 9}})");
  // Not in order: series are drawn by rate.
  const std::string sweep =
      " --made \"Made by <me>\" --setting \"made <up>\" --sweep eager=" + f.path +
      "/best.json --sweep eager=" + f.path + "/low.json --sweep adaptive=" + f.path +
      "/low.json --sweep adaptive=" + f.path + "/high.json";
  const command_result r =
      report(f, answers(), profile, sweep + " --predicted eager=" + f.path + "/simulated.json");
  INFO(r.err);
  CHECK(r.status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.find("made &lt;up&gt;") != std::string::npos);
  // On the line from 0 % bad at 100 to 10 % at 200.
  CHECK(page.find("eager more than 200 requests/s, adaptive 110 requests/s.") != std::string::npos);
  CHECK(page.find("<h1>adaptive serves 110 requests/s, 45 % fewer than eager</h1>") !=
        std::string::npos);
  CHECK(page.find("Made by &lt;me&gt;") != std::string::npos);
  CHECK(page.find("Against adaptive, eager has fewer bad requests at 1 of 2 rates") !=
        std::string::npos);
  CHECK(page.find("<td>adaptive</td><td>200.0</td><td>180.0</td><td>10.00 %</td>") !=
        std::string::npos);
  CHECK(page.find("0.2 ms after they should have been") != std::string::npos);
  CHECK(page.find("eager, predicted") != std::string::npos);
  CHECK(page.find("eager, measured") != std::string::npos);
  CHECK(page.find("adaptive, predicted") == std::string::npos);
  // A prediction of what was not measured.
  CHECK(report(f, answers(), profile, sweep + " --predicted other=" + f.path + "/simulated.json")
            .err.find("name of --sweep") != std::string::npos);
  CHECK(report(f, answers(), profile, " --predicted eager=" + f.path + "/simulated.json").status ==
        2);
}
TEST_CASE("of a machine that does other work the page concludes nothing") {
  const folder f;
  json late = answers();
  late["send_delay_p99_ms"] = 5.1;
  test::spill(f.path + "/late.json", late.dump());
  CHECK(report(f, answers(), "lenet,1,100,0.5\nlenet,2,100,0.8\n",
               " --sweep eager=" + f.path + "/late.json --sweep adaptive=" + f.path + "/run.json")
            .status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.find("<h1>This machine was too busy for a conclusion</h1>") != std::string::npos);
  CHECK(page.find("Against adaptive") == std::string::npos);
  CHECK(page.find("run it again when it is idle") != std::string::npos);
}
TEST_CASE("a course is drawn by second, with what happened and what was learned") {
  const folder f;
  const std::string profile = "lenet,1,100,0.5\nlenet,2,100,0.8\n";
  const std::string course = " --course eager=" + f.path + "/run.json";
  test::spill(f.path + "/learned.csv", "time_s,device,factor\n0.5,0,1\n0.5,1,1\n1.5,0,1.9\n");
  const command_result r =
      report(f, answers(), profile,
             course + " --event \"2=slow <now>\" --learned " + f.path + "/learned.csv");
  INFO(r.err);
  CHECK(r.status == 0);
  const std::string page = test::slurp(f.path + "/page.html");
  CHECK(page.find("eager: 5.00 % bad before, 10.00 % after.") != std::string::npos);
  CHECK(page.find("slow &lt;now&gt;") != std::string::npos);
  CHECK(page.find("device 1") != std::string::npos);
  CHECK(report(f, answers(), profile, course + " --event soon").status == 2);
  CHECK(report(f, answers(), profile, course + " --event soon=slow").status == 2);
  json run = answers();
  run.erase("sent_per_second");
  CHECK(report(f, run, profile, course).err.find("sent_per_second") != std::string::npos);
}
TEST_CASE("a missing field is named") {
  for (const char* field : {"executor", "latency_ms", "verified", "per_model", "batches"}) {
    const folder f;
    json run = answers();
    run.erase(field);
    const command_result r = report(f, run);
    CHECK(r.status == 2);
    CHECK(r.err.find(field) != std::string::npos);
  }
}
}  // namespace
}  // namespace cohort::report_test
