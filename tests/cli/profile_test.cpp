// SPDX-License-Identifier: Apache-2.0
// What `cohort profile` measures and writes. No assertion on how long anything took.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>

#include "cli/run_command.hpp"

namespace cohort {
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
    CHECK(m["alpha_ms"].get<double>() >= 0);
    CHECK(m["beta_ms"].get<double>() >= 0);
    CHECK(m["max_relative_error"].get<double>() >= 0);
    CHECK(m["mem_mb"].get<double>() > 0);
    REQUIRE(m["points"].size() == 4);  // Two batch sizes on two partitions.
    for (const json& p : m["points"]) {
      CHECK(p["latency_ms"].get<double>() > 0);
      CHECK(p["p10_ms"].get<double>() <= p["p90_ms"].get<double>());
      CHECK(p["runs"] == 3);
      for (const json& stage : p["stages_ms"]) {
        CHECK(stage.get<double>() >= 0);
        CHECK(stage.get<double>() < 10000);
      }
    }
  }

  const std::string latency = test::slurp(folder + "/latency.csv");
  CHECK(latency.starts_with("model,batch,partition_pct,latency_ms\nlenet,1,50,"));
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

TEST_CASE("bad options of profile are one line on standard error and exit status 2") {
  struct row {
    const char* arguments;
    const char* message;
  };
  const row rows[] = {
      {"--out x", "--model: missing"},
      {"--model lenet", "--out: missing"},
      {"--model alexnet --out x", "--model: \"alexnet\" is not allowed: expected all, lenet"},
      {"--model lenet --out x --executor cuda", "--executor: cuda"},
      {"--model lenet --out x --executor tpu", "--executor: \"tpu\""},
      {"--model lenet --out x --batches 1,0", "--batches: 0 is not allowed"},
      {"--model lenet --out x --batches 1,", "--batches: \"\" is not allowed"},
      {"--model lenet --out x --batches 2,2", "--batches: 2 is not allowed"},
      {"--model lenet --out x --partitions 101", "--partitions: 101 is not allowed"},
      {"--model lenet --out x --repeats 2", "--repeats: 2 is not allowed"},
      {"--model lenet --out /dev/null/x", "--out: /dev/null/x: "},
  };
  for (const row& r : rows) {
    INFO(std::string{r.arguments});
    const auto got = cohort_command(std::string{"profile "} + r.arguments);
    INFO(got.err);
    CHECK(got.status == 2);
    CHECK(got.out.empty());
    CHECK(std::ranges::count(got.err, '\n') == 1);
    CHECK(got.err.find(r.message) != std::string::npos);
  }
}

}  // namespace
}  // namespace cohort
