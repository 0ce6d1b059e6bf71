// SPDX-License-Identifier: Apache-2.0
// The worked examples of staged batching, from the command line.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include "run_command.hpp"

namespace {
using cohort::test::cohort_command;
using cohort::test::scratch;
using cohort::test::spill;
using nlohmann::json;

struct files {
  std::string model = scratch("model.json");
  std::string arrivals = scratch("arrivals.csv");
  files(const json& m, const std::string& csv) {
    spill(model, m.dump());
    spill(arrivals, csv);
  }
  ~files() {
    std::remove(model.c_str());
    std::remove(arrivals.c_str());
  }
  [[nodiscard]] json run(const std::string& policy, const std::string& more = "") const {
    const auto r = cohort_command("pipeline " + model + " --policy " + policy + " --arrivals " +
                                  arrivals + " --events --json " + more);
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
    CHECK(r.err.empty());
    return json::parse(r.out);
  }
};

json stage(const std::string& name, const std::vector<json>& rows) {
  return {{"name", name}, {"latency", rows}};
}
json model(const std::vector<json>& stages) {
  return {{"name", "m"}, {"batch_max", 4}, {"slo_ms", 200}, {"stages", stages}};
}
using list = std::vector<double>;

TEST_CASE("a model that is too large to plan for is said with its file") {
  std::vector<json> stages;
  for (int i = 0; i < 60; ++i) {
    stages.push_back(stage("s" + std::to_string(i), {{{"batch", 1024}, {"ms", 1}}}));
  }
  json m = model(stages);
  m["batch_max"] = 1024;
  m["between"] = "line";
  const files f{m, "time_ms\n0\n"};
  const auto r =
      cohort_command("pipeline " + f.model + " --policy dvabatch --arrivals " + f.arrivals);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  CHECK(cohort::test::gist(r.err) ==
        "cohort: " + f.model + ": planner: stages, batch_max ... too many ... at most 1e9\n");
}
TEST_CASE("sizes between measured ones take a step or lie on a line, and repairs are said") {
  const std::vector<json> rows{{{"batch", 1}, {"ms", 1}}, {{"batch", 4}, {"ms", 4}}};
  json m = model({stage("s", rows)});
  const std::string two = "time_ms\n0\n0\n";
  CHECK(files{m, two}.run("zero-batch")["latency_ms"] == json{4.0, 4.0});
  m["between"] = "line";
  CHECK(files{m, two}.run("zero-batch")["latency_ms"] == json{2.0, 2.0});
  m["stages"][0]["latency"] = {{{"batch", 1}, {"ms", 3}}, {{"batch", 4}, {"ms", 2}}};
  const files fallen{m, two};
  const auto r = cohort_command("pipeline " + fallen.model + " --policy zero-batch --arrivals " +
                                fallen.arrivals + " --events --json");
  CHECK(r.status == 0);
  CHECK(json::parse(r.out)["latency_ms"] == json{2.5, 2.5});
  CHECK(cohort::test::gist(r.err) ==
        "cohort: warning: " + fallen.model +
            ": ... stage \"s\" ... batch 1 to 4 ... 33 % ... mean ...\n");
}
TEST_CASE("case I: batches of unlike lengths overlap") {
  std::vector<json> stages;
  for (const char* name : {"A", "B", "C", "D"}) {
    std::vector<json> rows;
    for (int b = 1; b <= 4; ++b) {
      rows.push_back({{"batch", b}, {"size", 16}, {"ms", 5}, {"share", b / 4.0}});
      rows.push_back({{"batch", b}, {"size", 32}, {"ms", 10}, {"share", b / 4.0}});
    }
    stages.push_back(stage(name, rows));
  }
  json m = model(stages);
  m["parallel"] = true;
  m["sizes"] = {{"buckets", {16, 32}}};
  const files f{m, "time_ms,size\n0,10\n0,16\n0,3\n0,30\n"};
  json r = f.run("dvabatch");
  CHECK(r["latency_ms"] == list{20, 20, 20, 40});
  CHECK(r["mean_ms"] == 25);
  CHECK(r["new"] == 2);
  r = f.run("dvabatch", "--buffer-sets 1");
  CHECK(r["latency_ms"] == list{20, 20, 20, 60});
  CHECK(r["mean_ms"] == 30);
  CHECK(f.run("zero-batch")["mean_ms"] == 40);
}
TEST_CASE("case II: a row splits where its operators prefer single requests") {
  std::vector<json> stages{stage("A", {{{"batch", 4}, {"ms", 10}}})};
  for (const char* name : {"B", "C", "D"}) {
    stages.push_back(stage(
        name,
        {{{"batch", 1}, {"ms", 2.5}}, {{"batch", 2}, {"ms", 5}}, {{"batch", 4}, {"ms", 10}}}));
  }
  json m = model(stages);
  for (const bool halving : {false, true}) {
    if (halving) m["policies"] = {"halving"};
    const files f{m, "time_ms\n0\n0\n0\n0\n"};
    const json r = f.run("dvabatch");
    CHECK(r["latency_ms"] == list{17.5, 25, 32.5, 40});
    CHECK(r["mean_ms"] == 28.75);
    CHECK(r["p50_ms"] == 25);
    CHECK(r["p99_ms"] == 40);
    CHECK(r["throughput_rps"] == 100);
    CHECK(r["mean_batch"] == list{4, 1, 1, 1});
    CHECK(r["split"] == 1);
    CHECK(f.run("zero-batch")["latency_ms"] == list{40, 40, 40, 40});
  }
}
TEST_CASE("case III: requests catch up with the row that runs") {
  std::vector<json> stages;
  for (const char* name : {"A", "B", "C", "D"}) {
    stages.push_back(stage(name, {{{"batch", 4}, {"ms", 10}}}));
  }
  json m = model(stages);
  m["window_ms"] = 40;
  m["tcomp_wait_ms"] = 15;
  const files f{m, "time_ms\n0\n50\n50\n50\n"};
  const json r = f.run("dvabatch");
  CHECK(r["latency_ms"] == list{90, 40, 40, 40});
  CHECK(r["stretch"] == 1);
  CHECK(r["hold"] == 1);
  CHECK(f.run("delay-batch:40")["latency_ms"] == list{80, 80, 80, 80});
  const files later{m, "time_ms\n0\n50\n50.5\n51\n"};
  CHECK(later.run("dvabatch")["latency_ms"] == list{100, 50, 49.5, 49});
  CHECK(later.run("dvabatch", "--buffer-sets 1")["latency_ms"] == list{100, 50, 49.5, 49});
}
TEST_CASE("a window of 0 makes a row of each instant's requests, none waits for the device") {
  json m = model({stage("A", {{{"batch", 4}, {"ms", 10}}})});
  const std::string csv = "time_ms\n0\n0\n1\n2\n";
  CHECK(files{m, csv}.run("dvabatch")["latency_ms"] == list{10, 10, 19, 18});  // Bound late.
  m["window_ms"] = 0;
  const json r = files{m, csv}.run("dvabatch");
  CHECK(r["latency_ms"] == list{10, 10, 19, 28});
  CHECK(r["new"] == 3);
}
TEST_CASE("cellular lets requests at different steps of a cell share a batch") {
  json m = model({});
  json cell = stage("cell", {{{"batch", 4}, {"ms", 10}}});
  cell["recurs"] = true;
  m["stages"] = json::array({cell});
  m["sizes"] = {{"buckets", {2, 3}}};
  const files f{m, "time_ms,size\n0,3\n5,2\n"};
  // Steps 0-10, 10-20, 20-30: the second joins the second and third.
  CHECK(f.run("cellular")["latency_ms"] == list{30, 25});
  CHECK(f.run("zero-batch")["latency_ms"] == list{30, 45});
}
TEST_CASE("early exit with chance 1 leaves after the first stage, with 0 it is dvabatch") {
  const json m =
      model({stage("A", {{{"batch", 4}, {"ms", 10}}}), stage("B", {{{"batch", 4}, {"ms", 10}}})});
  const files f{m, "time_ms\n0\n0\n3\n"};
  CHECK(f.run("early-exit:1")["latency_ms"] == list{10, 10, 17});
  CHECK(f.run("early-exit:0")["latency_ms"] == f.run("dvabatch")["latency_ms"]);
}
TEST_CASE("every policy ends every request, and equal seeds give equal bytes") {
  const json m = model({stage("A", {{{"batch", 1}, {"ms", 1}}, {{"batch", 4}, {"ms", 1.5}}}),
                        stage("B", {{{"batch", 1}, {"ms", 1}}, {{"batch", 4}, {"ms", 4}}})});
  const files f{m, ""};
  for (const char* p :
       {"zero-batch", "delay-batch:2", "lazy-batch", "cellular", "dvabatch", "early-exit:0.3"}) {
    CAPTURE(p);
    const std::string line =
        "pipeline " + f.model + " --policy " + p + " --rate 400 --requests 2000 --json";
    const auto once = cohort_command(line);
    REQUIRE(once.status == 0);
    CHECK(once.out == cohort_command(line).out);
    CHECK(once.out != cohort_command(line + " --seed 2").out);
    const json r = json::parse(once.out);
    CHECK(r["completed"] == 2000);
    CHECK_FALSE(r.contains("latency_ms"));
    for (const char* field : {"policy", "mean_ms", "p50_ms", "p99_ms", "throughput_rps", "bad_rate",
                              "new", "stretch", "split", "hold", "mean_batch"}) {
      CHECK(r.contains(field));
    }
  }
}
TEST_CASE("--trace writes a span for each item") {
  const json m =
      model({stage("A", {{{"batch", 4}, {"ms", 10}}}), stage("B", {{{"batch", 4}, {"ms", 10}}})});
  const files f{m, "time_ms\n0\n0\n"};
  const std::string trace = scratch("trace.json");
  (void)f.run("dvabatch", "--trace " + trace);
  const json t = json::parse(cohort::test::slurp(trace));
  std::remove(trace.c_str());
  int spans = 0;
  for (const json& e : t["traceEvents"]) spans += e["ph"] == "X" ? 1 : 0;
  CHECK(spans == 2);
  CHECK(t["traceEvents"].back()["dur"] == 10000);
}
TEST_CASE("--svg draws every item on a timeline") {
  const json m =
      model({stage("A<", {{{"batch", 4}, {"ms", 10}}}), stage("B", {{{"batch", 4}, {"ms", 10}}})});
  const files f{m, "time_ms\n0\n15\n"};
  const std::string svg = scratch("timeline.svg");
  (void)f.run("zero-batch", "--svg " + svg);
  const std::string text = cohort::test::slurp(svg);
  std::remove(svg.c_str());
  CHECK(text.find("batch 0, slots 0 to 0, 10.000 to 20.000 ms") != std::string::npos);
  CHECK(text.find(", slots 0 to 0, 20.000 to 30.000 ms") != std::string::npos);
  CHECK(text.find(">A</text>") != std::string::npos);
}
TEST_CASE("what profile measures, pipeline reads") {
  const std::string folder = scratch("profiles");
  const auto measured = cohort_command(
      "profile --model lenet --batches 1,2,4 --repeats 3 --slo-ms 10000 --out " + folder);
  REQUIRE(measured.status == 0);
  const auto r = cohort_command("pipeline " + folder +
                                "/lenet.json --policy dvabatch --rate 50 --requests 200 --json");
  CAPTURE(r.err);
  REQUIRE(r.status == 0);
  CHECK(json::parse(r.out)["completed"] == 200);
  CHECK(json::parse(r.out)["mean_batch"].size() == 3);
  std::filesystem::remove_all(folder);
}
TEST_CASE("without --json the answer is a table") {
  const files f{model({stage("A", {{{"batch", 4}, {"ms", 10}}})}), "time_ms\n0\n"};
  const auto r = cohort_command("pipeline " + f.model + " --policy dvabatch --arrivals " +
                                f.arrivals + " --events");
  CHECK(r.status == 0);
  CHECK(r.out.find("mean 10 ms") != std::string::npos);
}
TEST_CASE("lengths say nothing of a model without sizes, and that is said") {
  const files f{model({stage("A", {{{"batch", 4}, {"ms", 10}}})}), "size\n7\n"};
  const std::string base =
      "pipeline " + f.model + " --policy dvabatch --rate 10 --requests 50 --json";
  const auto with = cohort_command(base + " --lengths " + f.arrivals);
  CHECK(with.status == 0);
  CHECK(cohort::test::gist(with.err) == "cohort: --lengths ... not used ... no sizes\n");
  CHECK(with.out == cohort_command(base).out);
}
TEST_CASE("bad usage and input are one line on standard error and exit status 2") {
  const files f{model({stage("A", {{{"batch", 4}, {"ms", 10}}})}), "time_ms\n1\n0\n"};
  const std::pair<std::string, std::string> cases[] = {
      {"--policy best --rate 10", "--policy: bad value"},
      {"--policy delay-batch:x --rate 10", "--policy delay-batch: bad value"},
      {"--policy delay-batch:-1 --rate 10", "--policy delay-batch: bad value"},
      {"--policy early-exit:2 --rate 10", "--policy early-exit: bad value"},
      {"--policy dvabatch", "--rate: missing"},
      {"--policy dvabatch --rate 0", "--rate: bad value"},
      {"--policy dvabatch --rate 10 --requests 0", "--requests: bad value"},
      {"--policy dvabatch --rate 10 --buffer-sets 0", "--buffer-sets: bad value"},
      {"--policy dvabatch --rate 10 --overhead-ms -1", "--overhead-ms: bad value"},
      {"--policy dvabatch --rate 1e400", "--rate: bad value"},
      {"--policy dvabatch --rate 10 --overhead-ms 1e400", "--overhead-ms: bad value"},
      {"--policy delay-batch:1e400 --rate 10", "--policy delay-batch: bad value"},
      {"--policy cellular --rate 10 --trace t.json", "--trace: bad value"},
      {"--policy cellular --rate 10 --svg t.svg", "--svg: bad value"},
      {"--policy dvabatch --rate 10 --arrivals " + f.arrivals, "--rate: bad value"},
      {"--policy dvabatch --arrivals " + f.arrivals, f.arrivals + ": line 3, time_ms: bad value"},
      {"--policy dvabatch --arrivals none.csv", "none.csv: "},
  };
  for (const auto& [arguments, expected] : cases) {
    CAPTURE(arguments);
    const auto r = cohort_command("pipeline " + f.model + " " + arguments + " --json");
    CAPTURE(r.err);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(cohort::test::gist(r.err).starts_with("cohort: " + expected));
    CHECK(r.err.find('\n') == r.err.size() - 1);
  }
}
}  // namespace
