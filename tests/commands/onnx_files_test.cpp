// SPDX-License-Identifier: Apache-2.0
// Models of ONNX through profile, interference and pack. No assertion on how long anything took.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <sstream>
#include <string>

#include <formats/onnx_graph.hpp>
#include <support/complaint.hpp>
#include <support/onnx_models.hpp>
#include "commands/run_command.hpp"

namespace cohort::onnx_files_test {
namespace {
using nlohmann::json;
using test::cohort_command;

/// A repository of two models, and a folder for what is measured of them.
struct repository {
  repository() {
    for (const auto& m : {test::encoder(), test::convolutions()}) {
      std::filesystem::create_directories(path + "/" + m.name + "/1");
      test::spill(path + "/" + m.name + "/1/model.onnx", formats::to_bytes(m));
    }
    test::spill(path + "/encoder/config.pbtxt",
                "parameters { key: \"max_length\" value { string_value: \"16\" } }");
  }
  ~repository() { std::filesystem::remove_all(path); }
  repository(const repository&) = delete;
  repository& operator=(const repository&) = delete;

  std::string path = test::scratch("onnx_files");
  std::string files = path + "/encoder/1/model.onnx," + path + "/convolutions/1/model.onnx";
  std::string out = path + "/profile";
  std::string profile = "profile --model " + files + " --out " + out +
                        " --batches 1,4 --partitions 50,100 --repeats 15 --slo-ms 100000 ";
};

std::size_t lines_of(const std::string& text, const std::string& start) {
  std::istringstream in{text};
  std::size_t n = 0;
  for (std::string line; std::getline(in, line);) n += line.starts_with(start);
  return n;
}

TEST_CASE("files of ONNX are profiled, run side by side, and planned") {
  const repository r;
  auto done = cohort_command(r.profile);
  INFO(done.err);
  REQUIRE(done.status == 0);
  const std::string usage = test::slurp(r.out + "/util.csv");
  CHECK(lines_of(usage, "encoder,") == 2);
  CHECK(lines_of(usage, "convolutions,") == 2);
  done = cohort_command("interference --profiles " + r.out + " --out " + r.out + " --model " +
                        r.files + " --pairs all --seconds 0.05 --turns 1 --batches 1 --json");
  INFO(done.err);
  REQUIRE(done.status == 0);
  CHECK(json::parse(done.out)["measured"].size() > 0);
  CHECK(test::slurp(r.out + "/pairs.csv").find("convolutions") != std::string::npos);
  done = cohort_command(
      "pack - --profiles " + r.out + " --algorithm elastic --json",
      R"({"gpus": 2, "sizes": [50, 100], "demand": {"encoder": 1, "convolutions": 1}})");
  INFO(done.err);
  CHECK(done.status == 0);
}

TEST_CASE("an SLO is that of the configuration, or of the option") {
  const repository r;
  test::spill(r.path + "/encoder/config.pbtxt",
              "parameters { key: \"max_length\" value { string_value: \"16\" } }\n"
              "parameters { key: \"slo_ms\" value { string_value: \"77777\" } }");
  const std::string profile = "profile --model " + r.path + "/encoder/1/model.onnx --out " + r.out +
                              " --batches 1,4 --repeats 3 ";
  auto done = cohort_command(profile);
  INFO(done.err);
  REQUIRE(done.status == 0);
  CHECK(test::slurp(r.out + "/slo.csv").find("encoder,77777,") != std::string::npos);
  REQUIRE(cohort_command(profile + "--slo-ms 55555").status == 0);
  CHECK(test::slurp(r.out + "/slo.csv").find("encoder,55555,") != std::string::npos);
}

TEST_CASE("a length is that of the configuration, or of the option") {
  const repository r;
  test::spill(r.path + "/encoder/config.pbtxt", "max_batch_size: -3");
  auto done = cohort_command(r.profile);
  CHECK(done.status == 2);
  CHECK(test::gist(done.err).find("encoder/config.pbtxt: max_batch_size: bad value") !=
        std::string::npos);
  CHECK(cohort_command(r.profile + "--max-length 8").status == 0);
  done = cohort_command(r.profile + "--max-length 0");
  CHECK(done.status == 2);
  CHECK(test::gist(done.err).find("--max-length: bad value") != std::string::npos);
}

TEST_CASE("interference names files that are none, or no models of the profile") {
  const repository r;
  std::filesystem::create_directories(r.out);
  test::spill(r.out + "/latency.csv",
              "model,batch,partition_pct,latency_ms\n"
              "encoder,1,50,2\nencoder,1,100,1\nconvolutions,1,50,2\nconvolutions,1,100,1\n");
  test::spill(r.out + "/slo.csv", "model,slo_ms,mem_mb\nencoder,20,1\nconvolutions,20,1\n");
  const std::string start =
      "interference --profiles " + r.out + " --out " + r.out + " --pairs all ";
  const auto err = [&](const std::string& more) {
    const auto done = cohort_command(start + more);
    CHECK(done.status == 2);
    return test::gist(done.err);
  };
  CHECK(err("") == "cohort: ... --model NAME=FILE.onnx ...\n");
  CHECK(err("--model lenet") == "cohort: --model: ... [NAME=]FILE.onnx ...\n");
  CHECK(err("--model other=" + r.path + "/encoder/1/model.onnx") ==
        "cohort: --model: ... other ... files of models of ...\n");
  const std::string twice = "encoder=" + r.path + "/encoder/1/model.onnx";
  CHECK(err("--model " + twice + "," + twice) == "cohort: --model: ... each name once ...\n");
}

}  // namespace
}  // namespace cohort::onnx_files_test
