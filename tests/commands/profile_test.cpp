// SPDX-License-Identifier: Apache-2.0
// What `cohort profile` measures and writes. No assertion on how long anything took.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::profile_test {
namespace {
using nlohmann::json;
using test::cohort_command;

TEST_CASE("profile writes files that the other subcommands read") {
  const std::string folder = test::scratch("profile/of/two");
  const auto r = cohort_command(
      "profile --model lenet,resnet_mini --executor host --batches 4,1 --partitions 50,100 "
      "--repeats 3 --slo-ms 10000 --json --out " +
      folder);
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.err.empty());
  const json a = json::parse(r.out);
  CHECK(a == json::parse(test::slurp(folder + "/profile.json")));
  REQUIRE(a["models"].size() == 2);
  for (const json& m : a["models"]) {
    // A line that does not fall, whatever was measured.
    CHECK(m["alpha_ms"].get<double>() >= 0);
    CHECK(m["beta_ms"].get<double>() >= 0);
    CHECK(m["alpha_ms"].get<double>() + m["beta_ms"].get<double>() > 0);
    CHECK(m["max_relative_error"].is_number());
    CHECK(m["mem_mb"].get<double>() > 0);
    REQUIRE(m["points"].size() == 4);  // Two batch sizes on two partitions.
    for (const json& p : m["points"]) {
      CHECK(p["latency_ms"].get<double>() > 0);
      CHECK(p["p10_ms"].get<double>() <= p["p90_ms"].get<double>());
      CHECK(p["runs"] == 3);
      for (const json& stage : p["stages_ms"]) {
        CHECK(stage.get<double>() <= p["latency_ms"].get<double>());
      }
    }
  }

  const std::string latency = test::slurp(folder + "/latency.csv");
  CHECK(latency.starts_with("model,batch,partition_pct,latency_ms,spread\nlenet,1,50,"));
  CHECK(std::ranges::count(latency, '\n') == 9);
  CHECK(test::slurp(folder + "/slo.csv").starts_with("model,slo_ms,mem_mb\nlenet,10000,"));
  const json stages = json::parse(test::slurp(folder + "/lenet.json"));
  CHECK(stages["name"] == "lenet");
  CHECK(stages["batch_max"] == 4);
  REQUIRE(stages["stages"].size() == 3);
  CHECK(stages["stages"][0]["latency"][1]["batch"] == 4);

  const auto run =
      cohort_command("simulate " + folder + "/workload.json --policy deferred --rate 5 --json");
  CHECK(run.status == 0);
  CHECK(json::parse(run.out)["per_model"].size() == 2);
  std::filesystem::remove_all(test::scratch("profile"));
}

TEST_CASE("with --batches auto sizes are added and said, and the line holds between them") {
  const std::string folder = test::scratch("profile_auto");
  const auto r = cohort_command(
      "profile --model lenet --batches auto --largest-batch 16 --repeats 3 --slo-ms 100000 --json "
      "--out " +
      folder);
  INFO(r.err);
  REQUIRE(r.status == 0);
  const json m = json::parse(r.out)["models"][0];
  // 1, 4 and 16 are measured; of 2 to 3 and of 5 to 15 at least a middle each.
  REQUIRE(m["added"].size() >= 2);
  CHECK(m["added"][0]["below"] == 1);
  CHECK(m["added"][0]["above"] == 4);
  CHECK(m["points"].size() == 3 + m["added"].size());
  CHECK(m["points"].back()["batch"] == 16);
  for (std::size_t i = 1; i < m["points"].size(); ++i) {
    CHECK(m["points"][i - 1]["batch"].get<int>() < m["points"][i]["batch"].get<int>());
  }
  CHECK(static_cast<std::size_t>(std::ranges::count(r.err, '\n')) == m["added"].size());
  CHECK(test::gist(r.err).has_line("cohort: lenet: batch 3 ... 1 and 4: ..."));
  const json stages = json::parse(test::slurp(folder + "/lenet.json"));
  CHECK(stages["between"] == "line");
  CHECK(stages["stages"][0]["latency"].size() == m["points"].size());
  std::filesystem::remove_all(folder);
  const auto refused = cohort_command("profile --model lenet --largest-batch 8 --out " + folder);
  CHECK(refused.status == 2);
  CHECK(test::gist(refused.err) == "cohort: --largest-batch: bad value\n");
}

TEST_CASE("profile cuts models into stages by trial or by number, for pipelines to read") {
  const std::string folder = test::scratch("profile_cut");
  const std::string command =
      "profile --model lenet --batches 1,2,4 --repeats 3 --slo-ms 100000 --json --out " + folder +
      " --stages ";
  // Hand-overs of a second: whole.
  auto r = cohort_command(command + "auto --hand-over-ms 1000 --stage-load 0.5");
  INFO(r.err);
  REQUIRE(r.status == 0);
  json slicing = json::parse(r.out)["models"][0]["slicing"];
  CHECK(slicing["stages"] == json{3});
  CHECK(slicing["hand_over_ms"] == 1000);
  // Batches of 4 take 1 s and little more; half of the peak.
  CHECK(slicing["rate_rps"].get<double>() == doctest::Approx(2).epsilon(0.1));
  REQUIRE(slicing["tried"].size() == 3);
  CHECK(slicing["tried"][2]["stages"] == json{1, 1, 1});
  CHECK(slicing["tried"][2]["mean_ms"].get<double>() >
        slicing["tried"][0]["mean_ms"].get<double>());
  CHECK(json::parse(test::slurp(folder + "/stages.json")) ==
        json{{"lenet", {{"stages", json{3}}}}});
  CHECK(json::parse(test::slurp(folder + "/lenet.json"))["stages"].size() == 1);

  r = cohort_command(command + "2");
  REQUIRE(r.status == 0);
  slicing = json::parse(r.out)["models"][0]["slicing"];
  CHECK(slicing["stages"].size() == 2);
  CHECK_FALSE(slicing.contains("tried"));
  CHECK(json::parse(test::slurp(folder + "/lenet.json"))["stages"].size() == 2);
  const auto run = cohort_command("pipeline " + folder +
                                  "/lenet.json --policy dvabatch --rate 50 --requests 200 --json");
  CHECK(run.status == 0);

  r = cohort_command("profile --model lenet --batches 1,2 --repeats 3 --stages auto --out " +
                     folder);
  REQUIRE(r.status == 0);
  CHECK(r.out.find("stage counts in virtual time at 0.6 of the peak") != std::string::npos);
  CHECK(r.out.find("chosen") != std::string::npos);
  r = cohort_command(command + "4");
  CHECK(r.status == 2);
  CHECK(test::gist(r.err) == "cohort: --stages: bad value\n");
  std::filesystem::remove_all(folder);
}

TEST_CASE("bad options of profile are one line on standard error and exit status 2") {
  struct row {
    const char* arguments;
    const char* message;
  };
  const row rows[] = {
      {"--out x", "--model: missing"},
      {"--model lenet", "--out: missing"},
      {"--model alexnet --out x", "--model: bad value"},
      {"--model lenet --out x --executor cuda", "--executor: bad value"},
      {"--model lenet --out x --executor tpu", "--executor: bad value"},
      {"--model lenet --out x --batches 1,0", "--batches: bad value"},
      {"--model lenet --out x --batches 1,", "--batches: bad value"},
      {"--model lenet --out x --batches 2,2", "--batches: bad value"},
      {"--model lenet --out x --partitions 101", "--partitions: bad value"},
      {"--model lenet --out x --repeats 2", "--repeats: bad value"},
      {"--model lenet --out x --stages best", "--stages: bad value"},
      {"--model lenet --out x --stages 0", "--stages: bad value"},
      {"--model lenet --out x --stage-load 0.5", "--stage-load: bad value"},
      {"--model lenet --out x --stages 2 --hand-over-ms 1", "--hand-over-ms: bad value"},
      {"--model lenet --out x --stages auto --stage-load 1", "--stage-load: bad value"},
      {"--model lenet --out x --stages auto --hand-over-ms 1e400", "--hand-over-ms: bad value"},
      {"--model lenet --out /dev/null/x", "--out: /dev/null/x: "},
  };
  for (const row& r : rows) {
    INFO(std::string{r.arguments});
    const auto got = cohort_command(std::string{"profile "} + r.arguments);
    INFO(got.err);
    CHECK(got.status == 2);
    CHECK(got.out.empty());
    CHECK(std::ranges::count(got.err, '\n') == 1);
    CHECK(test::gist(got.err).find(r.message) != std::string::npos);
  }
}

}  // namespace
}  // namespace cohort::profile_test
