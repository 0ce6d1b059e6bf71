// SPDX-License-Identifier: Apache-2.0
// What `cohort interference` measures and writes. No assertion on how long anything took.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <support/complaint.hpp>
#include "commands/run_command.hpp"

namespace cohort::interference_test {
namespace {
using nlohmann::json;
using test::cohort_command;
using test::command_result;
using test::slurp;
using test::spill;

/// What `cohort profile --partitions 50,100` could have written of two models.
class fixture {
 public:
  fixture() {
    std::filesystem::create_directory(profiles);
    std::string latency = "model,batch,partition_pct,latency_ms\n";
    for (const char* model : {"lenet", "resnet_mini"}) {
      for (const char* size : {"50", "100"}) {
        latency += std::string{model} + ",1," + size + ",1\n" + model + ",2," + size + ",2\n";
      }
    }
    write("latency.csv", latency);
    write("slo.csv", "model,slo_ms,mem_mb\nlenet,1000,1\nresnet_mini,1000,1\n");
    write("util.csv",
          "model,batch,l2_util_pct,dram_util_pct\nlenet,1,10,0\nlenet,2,30,0\n"
          "resnet_mini,1,20,0\nresnet_mini,2,50,0\n");
  }
  ~fixture() {
    for (const std::string& folder : {profiles, out}) std::filesystem::remove_all(folder);
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  void write(const std::string& name, const std::string& text) const {
    spill(profiles + "/" + name, text);
  }
  [[nodiscard]] command_result run(const std::string& options) const {
    return cohort_command("interference --seconds 0.01 --turns 2 " + options);
  }
  [[nodiscard]] command_result measure(const std::string& options = "") const {
    return run("--profiles " + profiles + " --pairs all --out " + out + " " + options);
  }
  void refuses(const std::string& options, const std::string& complaint) const {
    const command_result r = run(options);
    CAPTURE(options);
    CHECK(r.status == 2);
    CHECK(r.out.empty());
    CHECK(test::gist(r.err) == "cohort: " + complaint + "\n");
  }

  std::string profiles = test::scratch("interference.profiles");
  std::string out = test::scratch("interference.out");
};

const std::string demand = R"({"gpus": 1, "demand": {"lenet": 1, "resnet_mini": 1}})";

TEST_CASE_FIXTURE(fixture, "pairs are measured, fitted and planned with") {
  const command_result r = measure("--json");
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.err.empty());
  const json a = json::parse(r.out);
  CHECK(r.out == slurp(out + "/interference.json"));
  CHECK(a["pairs"] == "all");
  CHECK(a["possible_pairs"] == 3);
  CHECK(a["measured_pairs"] == 3);
  // Batches 1 and 2 on halves: 3 cases of a model with itself, 4 of two; two sides each.
  REQUIRE(a["measured"].size() == 20);
  for (const json& m : a["measured"]) {
    CHECK(m["alone_ms"].get<double>() > 0);
    CHECK(m["beside_ms"].get<double>() > 0);
    CHECK(m["factor"].get<double>() > 0);
    CHECK(m["partition_pct"] == 50);
    CHECK(m["turns"] == 2);
  }
  CHECK(a["fit"]["coefficients"]["c_dram_self"] == 0);  // All usages of memory are equal.
  CHECK(a["fit"]["one_by_one"] == true);
  CHECK(a["fit"]["held_back_factors"] == 20);
  CHECK(a["fit"]["error"]["p50"].get<double>() <= a["fit"]["error"]["p95"].get<double>());
  CHECK(slurp(out + "/interference.csv")
            .starts_with("c_l2_self,c_l2_other,c_dram_self,c_dram_other,constant\n"));
  CHECK(slurp(out + "/interference.svg").starts_with("<svg xmlns"));
  for (const char* copy : {"latency.csv", "slo.csv", "util.csv"}) {
    CHECK(slurp(out + "/" + copy) == slurp(profiles + "/" + copy));
  }
  const auto packs = [&] {
    return cohort_command("pack - --profiles " + out + " --algorithm elastic-int --json", demand);
  };
  command_result plan = packs();
  CHECK(plan.status == 0);
  CHECK(plan.err.empty());
  CHECK(json::parse(plan.out)["interference"] == true);

  // Without counted bytes: by the pairs alone, and by a guess where one was not measured.
  std::filesystem::remove(out + "/util.csv");
  plan = packs();
  CHECK(plan.status == 0);
  CHECK(plan.err.empty());
  const std::string pairs = slurp(out + "/pairs.csv");
  spill(out + "/pairs.csv",
        pairs.substr(0, pairs.find('\n') + 1) + "lenet,1,50,lenet,1,50,1,1.5,1.5,0,5,host\n");
  plan = packs();
  CHECK(plan.status == 0);
  CHECK(test::gist(plan.err) == "cohort: warning: " + out +
                                    ": never measured ... : lenet beside resnet_mini 1.5, "
                                    "resnet_mini beside lenet 1.5, resnet_mini beside "
                                    "resnet_mini 1.5\n");
}
TEST_CASE_FIXTURE(fixture, "what is measured is not measured again") {
  REQUIRE(measure("--batches 1").status == 0);
  const std::string all = slurp(out + "/pairs.csv");
  CHECK(std::ranges::count(all, '\n') == 7);
  REQUIRE(measure("--batches 1").status == 0);
  CHECK(slurp(out + "/pairs.csv") == all);
  // Interrupted after the first case: its rows stay as they are.
  std::size_t end = 0;
  for (int line = 0; line < 3; ++line) end = all.find('\n', end) + 1;
  spill(out + "/pairs.csv", all.substr(0, end));
  REQUIRE(measure("--batches 1").status == 0);
  const std::string again = slurp(out + "/pairs.csv");
  CHECK(again.starts_with(all.substr(0, end)));
  CHECK(std::ranges::count(again, '\n') == 7);
  // More batches: what is there counts.
  REQUIRE(measure("--batches 1,2").status == 0);
  CHECK(slurp(out + "/pairs.csv").starts_with(again));
}
TEST_CASE_FIXTURE(fixture, "results may lie in the profile's own folder, and pairs may be chosen") {
  const command_result r =
      run("--profiles " + profiles + " --pairs auto --batches 1 --clock wall --out " + profiles);
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.out.find("of 3 pairs of models on host") != std::string::npos);
  CHECK(r.out.find("copies") == std::string::npos);
  CHECK(
      cohort_command("pack - --profiles " + profiles + " --algorithm elastic-int", demand).status ==
      0);
}
TEST_CASE_FIXTURE(fixture, "models without counted bytes are measured without a fit") {
  std::filesystem::remove(profiles + "/util.csv");
  const command_result r = measure("--batches 1 --json");
  REQUIRE(r.status == 0);
  const json a = json::parse(r.out);
  CHECK(a["fit"].is_null());
  CHECK(test::gist(a["why_no_fit"].get<std::string>()) == "no ... pair ... usage ...");
  CHECK_FALSE(std::filesystem::exists(out + "/interference.csv"));
  const command_result plan =
      cohort_command("pack - --profiles " + out + " --algorithm elastic-int", demand);
  CHECK(plan.status == 0);
  CHECK(plan.err.empty());
}
TEST_CASE_FIXTURE(fixture, "bad usage and bad input are one line") {
  const std::string from = "--profiles " + profiles;
  const std::string good = from + " --pairs all --out " + out;
  refuses("--profiles no --pairs all --out " + out,
          "no/slo.csv: cannot be read: No such file or directory");
  refuses(from + " --pairs some --out " + out, "--pairs: bad value");
  refuses(good + " --clock sun", "--clock: bad value");
  refuses(good + " --sizes 20", "--sizes: bad value");
  refuses(good + " --batches 64", "--batches: bad value");
  refuses(good + " --hold-back 1", "--hold-back: bad value");
  refuses(from + " --pairs all --out /dev/null/x", "--out: /dev/null/x: Not a directory");

  REQUIRE(measure("--batches 1").status == 0);
  const std::string pairs = slurp(out + "/pairs.csv");
  const std::string anew = " (remove the file to measure all pairs anew)";
  spill(out + "/pairs.csv", pairs.substr(0, pairs.size() - 20));
  const command_result cut = measure();
  CHECK(cut.status == 2);
  CHECK(cut.err.starts_with("cohort: " + out + "/pairs.csv: line 7"));
  CHECK(cut.err.ends_with(anew + "\n"));
  const std::string head = pairs.substr(0, pairs.find('\n') + 1);
  spill(out + "/pairs.csv", head + "vgg19,1,50,lenet,1,50,1,1,1,0,5,host\n");
  refuses(good, out + "/pairs.csv: line 2, model: bad value");
  spill(out + "/pairs.csv", head + "lenet,1,50,lenet,1,50,1,1,1,0,5,moon\n");
  refuses(good, out + "/pairs.csv: device: bad value");
  std::filesystem::remove(out + "/pairs.csv");

  write("slo.csv", "model,slo_ms,mem_mb\nlenet,999,1\nresnet_mini,1000,1\n");
  refuses(good, "--out: bad value");
  write("latency.csv",
        "model,batch,partition_pct,latency_ms\nlenet,1,100,1\nresnet_mini,1,100,1\n");
  refuses(good, "--profiles: bad value");
  write("latency.csv", "model,batch,partition_pct,latency_ms\nlenet,1,50,1\n");
  write("slo.csv", "model,slo_ms\nlenet,1000\n");
  write("util.csv", "model,batch,l2_util_pct,dram_util_pct\nlenet,1,1,1\n");
  refuses(good, "--profiles: bad value");
  write("latency.csv", "model,batch,partition_pct,latency_ms\nlenet,1,50,1\nmine,1,50,1\n");
  write("slo.csv", "model,slo_ms\nlenet,1000\nmine,1000\n");
  refuses(good, profiles + "/slo.csv: bad value");
}

}  // namespace
}  // namespace cohort::interference_test
