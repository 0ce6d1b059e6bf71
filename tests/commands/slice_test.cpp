// SPDX-License-Identifier: Apache-2.0
// What `cohort slice` writes. No assertion on how long anything took.
#include <doctest/doctest.h>

#include <cohort/runtime/onnx/library.hpp>
#include <cohort/runtime/onnx/session.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <commands/onnx_pieces.hpp>
#include <formats/onnx_graph.hpp>
#include <support/complaint.hpp>
#include <support/onnx_models.hpp>
#include "commands/run_command.hpp"

namespace cohort::slice_test {
namespace {
using nlohmann::json;
using test::cohort_command;

/// A folder that goes with it, and a model in it.
struct folder {
  explicit folder(const formats::onnx_model& m) : path{test::scratch("slice_" + m.name)} {
    std::filesystem::create_directories(path);
    file = path + "/" + m.name + ".onnx";
    bytes = formats::to_bytes(m);
    test::spill(file, bytes);
  }
  ~folder() { std::filesystem::remove_all(path); }

  std::string path;
  std::string file;
  std::string bytes;
};

std::shared_ptr<const runtime::onnx::session> load(const std::string& file) {
  return std::make_shared<const runtime::onnx::session>(
      runtime::onnx::library::open(), file, runtime::onnx::session_options{.max_size = 128});
}

TEST_CASE("slice writes a repository's model, stages that answer as it does, and a pipeline") {
  const folder f{test::encoder()};
  const std::string out = f.path + "/models";
  auto r = cohort_command("slice " + f.file + " --out " + out +
                          " --max-length 128 --stages 3 --largest-batch 4 --repeats 3 "
                          "--slo-ms 100000 --json");
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.err.empty());
  const json said = json::parse(r.out);
  CHECK(said["name"] == "encoder");
  CHECK(said["difference"].get<double>() < 5e-6);
  REQUIRE(said["stages"].size() == 3);
  CHECK(said["pieces"].size() > 3);
  for (std::size_t k = 0; k < 3; ++k) {
    const json& s = said["stages"][k];
    CHECK(s["nodes"].get<int>() > 0);
    CHECK(s["latency_ms"].size() == 3);  // Batches of 1, 2 and 4.
    CHECK(s["tensors"].empty() == (k == 2));
    CHECK((s["bytes"].get<int>() > 0) == (k < 2));
  }
  CHECK(test::slurp(out + "/encoder/1/model.onnx") == f.bytes);
  CHECK_FALSE(std::filesystem::exists(out + "/encoder/1/.stages.new"));

  commands::onnx_pieces::sessions stages;
  for (const char* k : {"1", "2", "3"}) {
    stages.push_back(load(out + "/encoder/1/stages/" + k + ".onnx"));
  }
  CHECK_FALSE(std::filesystem::exists(out + "/encoder/1/stages/4.onnx"));
  const auto whole = load(out + "/encoder/1/model.onnx");
  std::vector<std::int64_t> ids;
  std::mt19937 random{3};
  for (int i = 0; i < 2 * 17; ++i) ids.push_back(static_cast<std::int64_t>(random() % 64));
  commands::dense_tensors in(1);
  in[0].resize(ids.size() * sizeof(ids[0]));
  std::memcpy(in[0].data(), ids.data(), in[0].size());
  CHECK(commands::difference(whole->interface().outputs, commands::run_stages({whole}, in, 2, 17),
                             commands::run_stages(stages, in, 2, 17)) < 5e-6);

  const json pipeline = json::parse(test::slurp(out + "/encoder.json"));
  CHECK(pipeline["sizes"]["buckets"] == json{16, 32, 64, 128});
  REQUIRE(pipeline["stages"].size() == 3);
  CHECK(pipeline["stages"][0]["latency"].size() == 12);
  CHECK(json::parse(test::slurp(out + "/encoder.stages.json")) ==
        json{{"encoder", {{"stages", {1, 1, 1}}, {"sizes", {16, 32, 64, 128}}}}});
  test::spill(f.path + "/lengths.csv", "size\n20\n100\n");
  r = cohort_command("pipeline " + out +
                     "/encoder.json --policy dvabatch --rate 50 --requests 200 " + "--lengths " +
                     f.path + "/lengths.csv --json");
  INFO(r.err);
  CHECK(r.status == 0);

  // Again, in place, with fewer stages: nothing of before is left.
  r = cohort_command("slice " + out + "/encoder/1/model.onnx --out " + out +
                     " --max-length 64 --stages 2 --largest-batch 1 --repeats 3");
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.out.find("stages of " + out + "/encoder/1/model.onnx: " + out) != std::string::npos);
  CHECK(std::filesystem::exists(out + "/encoder/1/stages/2.onnx"));
  CHECK_FALSE(std::filesystem::exists(out + "/encoder/1/stages/3.onnx"));
}

TEST_CASE("slice finds the number of stages by trial: with long hand-overs the model is whole") {
  const folder f{test::convolutions()};
  const std::string out = f.path + "/models";
  const auto r = cohort_command("slice " + f.file + " --name image --out " + out +
                                " --largest-batch 2 --repeats 3 --hand-over-ms 1000");
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.out.find("stage counts in virtual time at 0.6 of the peak") != std::string::npos);
  CHECK(r.out.find("chosen") != std::string::npos);
  CHECK(formats::to_bytes(formats::parse_onnx("whole", f.bytes)) ==
        test::slurp(out + "/image/1/stages/1.onnx"));
  CHECK_FALSE(std::filesystem::exists(out + "/image/1/stages/2.onnx"));
}

TEST_CASE("profile measures a folder of stages by stage") {
  const folder f{test::mlp()};
  const std::string out = f.path + "/models";
  auto r = cohort_command("slice " + f.file + " --out " + out +
                          " --stages 2 --largest-batch 2 --repeats 3");
  INFO(r.err);
  REQUIRE(r.status == 0);
  CHECK(r.out.find("answers are those of the whole model bit by bit\n") != std::string::npos);
  r = cohort_command("profile --model " + out + "/mlp/1/stages --out " + f.path +
                     " --batches 1,2 --repeats 3 --slo-ms 100000 --json");
  INFO(r.err);
  REQUIRE(r.status == 0);
  const json m = json::parse(r.out)["models"][0];
  CHECK(m["name"] == "mlp");
  CHECK(m["points"][0]["stages_ms"].size() == 2);
  // What is left without its last stage answers, but is not the model.
  std::filesystem::remove(out + "/mlp/1/stages/2.onnx");
  r = cohort_command("profile --model " + out + "/mlp/1/stages --out " + f.path);
  CHECK(r.status == 2);
  CHECK(test::gist(r.err) == "cohort: ... stages: 1 stages ... not ... cut from ...\n");
}

TEST_CASE("bad input of slice is one line on standard error, exit status 2, and nothing written") {
  const folder f{test::encoder()};
  const std::string out = f.path + "/models";
  test::spill(f.path + "/cut_off.onnx", f.bytes.substr(0, f.bytes.size() / 2));
  test::spill(f.path + "/other.onnx", formats::to_bytes(test::mlp()));
  struct row {
    std::string arguments;
    std::string message;
  };
  const row rows[] = {
      {"--out x", "MODEL: missing"},
      {f.file, "--out: missing"},
      {f.path + " --out x", "MODEL: bad value"},
      {f.path + "/none.onnx --out " + out, "none.onnx: cannot be read: No such file"},
      {f.path + "/cut_off.onnx --out " + out, "cut_off.onnx: is cut off"},
      {f.file + " --out " + out + " --stages best", "--stages: bad value"},
      {f.file + " --out " + out + " --stages 0", "--stages: bad value"},
      {f.file + " --out " + out + " --name ../x", "--name: bad value"},
      {f.file + " --out " + out + " --largest-batch 0", "--largest-batch: bad value"},
      {f.file + " --out " + out + " --max-length 0", "--max-length: bad value"},
      {f.file + " --out " + out + " --most-tensors 0", "--most-tensors: bad value"},
      {f.file + " --out " + out + " --most-pieces 0", "--most-pieces: bad value"},
      {f.file + " --out " + out + " --repeats 2", "--repeats: bad value"},
      {f.file + " --out " + out + " --stage-load 1", "--stage-load: bad value"},
      {f.file + " --out " + out + " --max-length 512 --largest-batch 1",
       "up to 1 rows and size 512"},
      {f.file + " --out " + out + " --max-length 64 --largest-batch 1 --repeats 3 --stages 64",
       "--stages: bad value"},
      {f.file + " --out /dev/null/x", "--out: /dev/null/x: "},
  };
  for (const row& r : rows) {
    INFO(r.arguments);
    const auto got = cohort_command("slice " + r.arguments);
    INFO(got.err);
    CHECK(got.status == 2);
    CHECK(got.out.empty());
    CHECK(std::ranges::count(got.err, '\n') == 1);
    CHECK(test::gist(got.err).find(r.message) != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(out + "/encoder"));
  // Another model lies there.
  std::filesystem::create_directories(out + "/encoder/1");
  std::filesystem::copy_file(f.path + "/other.onnx", out + "/encoder/1/model.onnx");
  const auto r = cohort_command("slice " + f.file + " --out " + out);
  CHECK(r.status == 2);
  CHECK(test::gist(r.err) == "cohort: --out: ... /encoder/1/model.onnx\" ... model ...\n");
}

}  // namespace
}  // namespace cohort::slice_test
