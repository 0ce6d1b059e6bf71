// SPDX-License-Identifier: Apache-2.0
// Sliced models of a repository behind the server: `cohort slice`, then --repository --pipeline.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <formats/onnx_cuts.hpp>
#include <models/identity.hpp>
#include <models/onnx_factory.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <support/child_server.hpp>
#include <support/onnx_models.hpp>
#include "commands/run_command.hpp"
#include "inference/onnx_repository.hpp"

namespace cohort::inference::repository_pipelines_test {
namespace {

using nlohmann::json;
using repository = test::onnx_repository;

const std::string slow_slo = test::parameter("slo_ms", "60000");
const std::string pads = test::parameter("padding", "zeros");

void slice(const repository& r, const std::string& name, const std::string& options) {
  const auto made = test::cohort_command("slice " + r.folder + "/" + name + "/1/model.onnx --out " +
                                         r.folder + " --repeats 3 --largest-batch 2 " + options);
  REQUIRE_MESSAGE(made.status == 0, made.err);
}

/// Token ids of a length, none of which is padding.
std::string ids(std::size_t length, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  json data = json::array();
  for (std::size_t i = 0; i < length; ++i) data.push_back(1 + random() % 63);
  return json{{"inputs",
               {{{"name", "ids"}, {"datatype", "INT64"}, {"shape", {1, length}}, {"data", data}}}}}
      .dump();
}

std::vector<double> values(const std::string& answer) {
  return json::parse(answer).at("outputs").at(0).at("data").get<std::vector<double>>();
}

TEST_CASE("a sliced encoder runs in stages, and answers all lengths as the whole model") {
  const repository r;
  r.add(test::encoder(), "encoder", slow_slo + pads + test::parameter("max_length", "32"));
  r.add(test::mlp(), "mlp", slow_slo);  // Nobody has cut it: a pipeline of one stage.
  slice(r, "encoder", "--max-length 32 --stages 3");
  test::child_server whole{INFERENCE_SERVER, r.options()};
  test::child_server cut{INFERENCE_SERVER, r.options({"--pipeline", "auto"})};
  REQUIRE_MESSAGE(whole.port() != 0, whole.first_line);
  REQUIRE_MESSAGE(cut.port() != 0, cut.first_line);
  CHECK(cut.first_line.find("encoder 1+1+1") != std::string::npos);
  CHECK(cut.first_line.find("mlp 1") != std::string::npos);
  std::vector<std::thread> clients;
  std::atomic<int> wrong{0};
  for (std::uint64_t k = 0; k < 3; ++k) {  // At one time, so that rows have several requests.
    clients.emplace_back([&, k] {
      test::connection to_whole{whole.port()};
      test::connection to_cut{cut.port()};
      for (std::size_t length = 1 + k; length <= 32; length += 3) {
        const std::string body = ids(length, length);
        const auto [status, expected] = to_whole.ask("POST", "/v2/models/encoder/infer", body);
        const auto [also, got] = to_cut.ask("POST", "/v2/models/encoder/infer", body);
        if (status != 200 || also != 200) {
          ++wrong;
          continue;
        }
        const std::vector<double> a = values(expected);
        const std::vector<double> b = values(got);
        // Zeros behind a text, and cuts, change how ONNX Runtime rounds, and nothing else.
        double most = 0;
        double difference = 0;
        for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
          most = std::max(most, std::abs(a[i]));
          difference = std::max(difference, std::abs(a[i] - b[i]));
        }
        if (a.size() != 8 * length || b.size() != a.size() || !(difference < 5e-6 * most)) ++wrong;
      }
    });
  }
  for (std::thread& t : clients) t.join();
  CHECK(wrong == 0);
  test::connection c{cut.port()};
  CHECK(c.ask("POST", "/v2/models/encoder/infer", ids(33, 1)).first == 400);
  CHECK(c.ask("GET", "/v2/models/encoder/config").second.find("\"zeros\"") != std::string::npos);
  CHECK(c.ask("POST", "/v2/repository/index")
            .second.find(R"({"name":"encoder","version":"1","state":"READY"})") !=
        std::string::npos);
  const auto [status, stays] =
      c.ask("POST", "/v2/repository/models/encoder/unload", "", test::shown_token);
  CHECK(status == 404);
  CHECK(stays.find("the models of this server are fixed") != std::string::npos);
  CHECK(whole.stop() == 0);
  CHECK(cut.stop() == 0);
}

TEST_CASE("a client whose ids are out of range harms nobody but itself") {
  const repository r;
  r.add(test::encoder(), "encoder", slow_slo + pads + test::parameter("max_length", "32"));
  slice(r, "encoder", "--max-length 32 --stages 3");
  for (const bool is_cut : {false, true}) {
    CAPTURE(is_cut);
    test::child_server s{INFERENCE_SERVER,
                         is_cut ? r.options({"--pipeline", "auto"}) : r.options()};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    std::string bad = ids(7, 1);
    bad.replace(bad.find("\"data\":[") + 8, 0, "4711,");
    bad.replace(bad.find("\"shape\":[1,7"), 12, "\"shape\":[1,8");
    std::atomic<int> wrong{0};
    std::vector<std::thread> clients;
    for (std::uint64_t k = 0; k < 4; ++k) {  // Two of them send nothing else.
      clients.emplace_back([&, k] {
        test::connection c{s.port()};
        for (std::size_t i = 0; i < 40; ++i) {
          const auto [status, body] =
              c.ask("POST", "/v2/models/encoder/infer", k < 2 ? bad : ids(1 + i % 32, k));
          const bool is_told = body.find("model 'encoder'") != std::string::npos &&
                               body.find("cannot") != std::string::npos;
          if (k < 2 ? status != 400 || !is_told : status != 200) ++wrong;
        }
      });
    }
    for (std::thread& t : clients) t.join();
    CHECK(wrong == 0);
    test::connection c{s.port()};
    CHECK(c.ask("POST", "/v2/models/encoder/infer", ids(8, 3)).first == 200);
    s.signal(SIGTERM);
    // None failed, none was taken out.
    CHECK(s.read_rest().find("device ") == std::string::npos);
    CHECK(s.wait() == 0);
  }
}

TEST_CASE("a sliced net of one input size answers bit by bit as the whole one") {
  const repository r;
  r.add(test::convolutions(), "convolutions", slow_slo);
  slice(r, "convolutions", "--stages 2");
  test::child_server whole{INFERENCE_SERVER, r.options()};
  test::child_server cut{INFERENCE_SERVER, r.options({"--pipeline", "auto"})};
  REQUIRE_MESSAGE(whole.port() != 0, whole.first_line);
  REQUIRE_MESSAGE(cut.port() != 0, cut.first_line);
  CHECK(cut.first_line.find("convolutions 1+1") != std::string::npos);
  test::connection to_whole{whole.port()};
  test::connection to_cut{cut.port()};
  std::mt19937_64 random{7};
  for (int i = 0; i < 20; ++i) {
    json data = json::array();
    for (int k = 0; k < 28 * 28; ++k) data.push_back(static_cast<double>(random() % 256) / 255);
    const std::string body = json{
        {"inputs",
         {{{"name", "image"},
           {"datatype", "FP32"},
           {"shape", {1, 1, 28, 28}},
           {"data", data}}}}}.dump();
    const auto expected = to_whole.ask("POST", "/v2/models/convolutions/infer", body);
    CHECK(expected.first == 200);
    CHECK(to_cut.ask("POST", "/v2/models/convolutions/infer", body) == expected);
  }
  CHECK(whole.stop() == 0);
  CHECK(cut.stop() == 0);
}

/// x [batch, 3] -> early = 2 x, and late, for which each number must be 0 to 3.
formats::onnx_model with_early_output() {
  const formats::onnx_dimension batch{.value = -1, .name = "batch"};
  const formats::onnx_dimension three{.value = 3};
  test::onnx_builder b{"early"};
  b.input("x", runtime::data_type::f32, {batch, three});
  b.node("Mul", {"x", b.constant({}, {2.0F})}, {}, "early");
  const std::string rows = b.node("Cast", {"x"}, {{"to", std::int64_t{7}}});
  b.node("Gather", {b.constant({4}, {5, 6, 7, 8}), rows}, {}, "late");
  b.output("early", runtime::data_type::f32, {batch, three});
  b.output("late", runtime::data_type::f32, {batch, three});
  return b.done();
}

TEST_CASE("who wants no more than what is there half way is answered then") {
  const repository r;
  const formats::onnx_model m = with_early_output();
  r.add(m, "early", slow_slo);
  // Cut where x and what is early cross.
  const auto places = formats::find_cuts(m);
  const std::vector<std::string> crossing{"x", "early"};
  const auto at = std::ranges::find_if(places, [&](const formats::onnx_cut& c) {
    return std::ranges::is_permutation(c.tensors, crossing);
  });
  REQUIRE(at != places.end());
  const auto stages = formats::cut(m, {&*at, 1});
  const std::string folder = r.folder + "/early/1/stages";
  std::filesystem::create_directories(folder);
  for (std::size_t k = 0; k < stages.size(); ++k) {
    test::spill(folder + "/" + std::to_string(k + 1) + ".onnx", formats::to_bytes(stages[k]));
  }
  test::spill(folder + "/" + models::cut_from_file,
              models::cut_from(models::fingerprint_of_file(r.folder + "/early/1/model.onnx"), 2));
  test::spill(r.folder + "/early.stages.json", R"({"early": {"stages": [1, 1]}})");
  test::child_server s{INFERENCE_SERVER, r.options({"--pipeline", "auto"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto ask = [&](double first, const std::string& outputs) {
    return c.ask("POST", "/v2/models/early/infer",
                 R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[)" +
                     std::to_string(first) + R"(,2,3]}],"outputs":[)" + outputs + "]}");
  };
  const std::string early = R"({"name":"early"})";
  const std::string late = R"({"name":"late"})";
  CHECK(ask(1, early + "," + late).second.find("\"data\":[6,7,8]") != std::string::npos);
  for (int i = 0; i < 10; ++i) {  // 9 is none of four rows: the second half would fail.
    const auto [status, body] = ask(9, early);
    CAPTURE(body);
    CHECK(status == 200);
    CHECK(body.find("\"data\":[18,4,6]") != std::string::npos);
  }
  CHECK(ask(9, late).first == 400);
  CHECK(ask(1, late).first == 200);
  CHECK(s.stop() == 0);
}

TEST_CASE("what cannot be a pipeline is named with the reason, and the others are served") {
  const repository r;
  r.add(test::encoder(), "lengths", slow_slo + test::parameter("max_length", "32"));
  r.add(test::mlp(), "short", test::parameter("slo_ms", "0.001"));
  r.add(test::mlp(), "good", slow_slo + "dynamic_batching { max_queue_delay_microseconds: 100 }\n");
  r.add(test::mlp(), "torn", slow_slo);
  slice(r, "torn", "--stages 2");
  std::filesystem::resize_file(r.folder + "/torn/1/stages/2.onnx", 100);
  r.add(test::mlp(), "other", slow_slo);
  std::filesystem::create_directories(r.folder + "/other/1/stages");
  std::filesystem::copy(r.folder + "/torn/1/stages/1.onnx", r.folder + "/other/1/stages/1.onnx");
  r.add(test::mlp(), "short_of_one", slow_slo);
  slice(r, "short_of_one", "--stages 2");
  std::filesystem::remove(r.folder + "/short_of_one/1/stages/2.onnx");
  r.add(test::mlp(), "other_plan", slow_slo);
  test::spill(r.folder + "/other_plan.stages.json", R"({"other_plan": {"stages": [1, 1, 1]}})");
  // To open what is a pipe would wait for ever.
  r.add(test::mlp(), "piped_plan", slow_slo);
  REQUIRE(mkfifo((r.folder + "/piped_plan.stages.json").c_str(), 0600) == 0);
  r.add(test::mlp(), "piped_cut", slow_slo);
  slice(r, "piped_cut", "--stages 2");
  std::filesystem::remove(r.folder + "/piped_cut/1/stages/cut_from");
  REQUIRE(mkfifo((r.folder + "/piped_cut/1/stages/cut_from").c_str(), 0600) == 0);
  r.add(test::mlp(), "quick");  // Its SLO by the rule, and not below what HTTP takes.
  test::child_server s{INFERENCE_SERVER, r.options({"--pipeline", "auto"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(s.first_line.find("quick (aims at 20 ms)") != std::string::npos);
  CAPTURE(s.told_before);
  const auto told = [&](const char* what) {
    CHECK_MESSAGE(s.told_before.find(what) != std::string::npos, what);
  };
  told(
      "model 'lengths' is not served: its requests differ in length, and rows of a pipeline are "
      "padded");
  told("model 'short' is not served: slo_ms: got ");
  told(
      "good/config.pbtxt: dynamic_batching.max_queue_delay_microseconds is ignored with "
      "--pipeline");
  told("torn/1/stages/2.onnx");
  told("piped_plan.stages.json: is refused: it is not a regular file");
  told("piped_cut/1/stages: 2 stages are not those that were cut from ");
  told("other/1/stages: 1 stages are not those that were cut from ");
  told("short_of_one/1/stages: 1 stages are not those that were cut from ");
  told("model 'other_plan' is not served: stages: got ");
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/models/good/ready").first == 200);
  for (const char* bad : {"lengths", "short", "torn", "other", "short_of_one", "other_plan"}) {
    CHECK(c.ask("GET", std::string{"/v2/models/"} + bad).first == 404);
  }
  CHECK(s.stop() == 0);
}

TEST_CASE("a plan for a model that is not there, or of another number of stages, is refused") {
  const repository r;
  r.add(test::mlp(), "m", slow_slo);
  slice(r, "m", "--stages 2");
  const std::string file = r.folder + "/plan.json";
  test::spill(file, R"({"n": {"stages": [1, 1]}})");
  test::child_server unknown{INFERENCE_SERVER, r.options({"--pipeline", file})};
  CHECK(unknown.port() == 0);
  CHECK(unknown.first_line.find("model 'n' is not served: expected one of m") != std::string::npos);
  test::spill(file, R"({"m": {"stages": [1, 1, 1]}})");
  test::child_server many{INFERENCE_SERVER, r.options({"--pipeline", file})};
  CHECK(many.port() == 0);
  CHECK(many.told_before.find("stages: got 3 operators in all, expected 2") != std::string::npos);
  CHECK(many.first_line.find("no model can be served") != std::string::npos);
}

}  // namespace
}  // namespace cohort::inference::repository_pipelines_test
