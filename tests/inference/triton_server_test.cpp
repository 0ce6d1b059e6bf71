// SPDX-License-Identifier: Apache-2.0
// A server in the stead of tritonserver: its control of models, its metrics, its command line.
#include <doctest/doctest.h>
#include <formats/onnx_graph.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/metrics_pages.hpp>
#include <support/onnx_models.hpp>
#include <support/scratch_file.hpp>
#include <support/soon.hpp>
#include "inference/onnx_repository.hpp"

namespace cohort::inference::triton_server_test {
namespace {

namespace fs = std::filesystem;

using repository = test::onnx_repository;
using texts = std::vector<std::string>;

const std::string slow_slo = test::parameter("slo_ms", "60000");

/// Without a token, which not every mode takes.
texts options(const repository& r, const texts& more) {
  texts all{"--repository", r.folder, "--cache", "off", "--devices", "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
texts compatible(const repository& r, const texts& more) {
  texts all{"--triton-compatible",
            "--model-repository=" + r.folder,
            "--http-address",
            "127.0.0.1",
            "--metrics-port",
            "0",
            "--cache",
            "off",
            "--devices",
            "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Status and the first values of what a model `plus` makes of 1.
std::string answer(test::connection& c, const std::string& model,
                   const std::string& parameters = "") {
  const auto [status, body] = c.ask(
      "POST", "/v2/models/" + model + "/infer",
      "{" + parameters + R"("inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]})");
  const std::size_t at = body.find("\"data\":[");
  return std::to_string(status) + (at == std::string::npos ? "" : ' ' + body.substr(at + 8, 5));
}
std::string index(test::connection& c) { return c.ask("POST", "/v2/repository/index").second; }
/// In one step, as whoever is looked at meanwhile should.
void put(const std::string& file, const std::string& text) {
  test::spill(file + ".new", text);
  fs::rename(file + ".new", file);
}

TEST_CASE("a server that follows its folder serves what lies there, and else what it served") {
  const repository r;
  r.add(test::plus(2), "sum", slow_slo);
  r.add(test::plus(2), "goes", slow_slo);
  test::child_server s{INFERENCE_SERVER,
                       options(r, {"--model-control-mode", "poll", "--repository-poll-s", "0.02"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(answer(c, "sum") == "200 3,3,3");
  const auto [status, why] = c.ask("POST", "/v2/repository/models/sum/load");
  CHECK(status == 404);
  CHECK(why.find("--model-control-mode none or poll") != std::string::npos);
  r.add(test::plus(5), "new", slow_slo);
  CHECK(test::soon([&] { return answer(c, "new") == "200 6,6,6"; }));
  r.add(test::plus(5), "sum", "", 2);
  CHECK(test::soon([&] { return answer(c, "sum") == "200 6,6,6"; }));
  const std::string config = r.folder + "/sum/config.pbtxt";
  put(config, slow_slo + "version_policy { specific { versions: 1 } }");
  CHECK(test::soon([&] { return answer(c, "sum") == "200 3,3,3"; }));
  put(r.folder + "/sum/1/model.onnx", formats::to_bytes(test::plus(7)));
  CHECK(test::soon([&] { return answer(c, "sum") == "200 8,8,8"; }));
  // What is bad is told once, and leaves what is served: the folder was looked at once more at
  // least when a model that goes after that is gone.
  put(config, "max_batch_size: -1\n");
  CHECK(test::soon([&] { return index(c).find("the last load failed") != std::string::npos; }));
  fs::remove_all(r.folder + "/goes");
  CHECK(test::soon([&] { return answer(c, "goes") == "404"; }));
  CHECK(index(c).find("goes") == std::string::npos);
  CHECK(answer(c, "sum") == "200 8,8,8");
  put(config, slow_slo);
  CHECK(test::soon([&] { return answer(c, "sum") == "200 6,6,6"; }));
  // Without the folder all models stay.
  std::string said;
  fs::rename(r.folder, r.folder + "_aside");
  while (said.find("all models stay as they are\n") == std::string::npos) {
    const std::string line = s.read_line();
    REQUIRE_FALSE(line.empty());
    said += line;
  }
  CHECK(answer(c, "sum") == "200 6,6,6");
  fs::rename(r.folder + "_aside", r.folder);
  CHECK(s.stop() == 0);
  said += s.read_rest();
  CAPTURE(said);
  const std::string bad = "max_batch_size: got -1, expected 0 to 4096; model 'sum' is served";
  const std::size_t first = said.find(bad);
  CHECK(first != std::string::npos);
  CHECK(said.find(bad, first + 1) == std::string::npos);
  CHECK(said.find("model 'goes': unloaded, version 1") != std::string::npos);
}

TEST_CASE("--load-model names the models of the start, and clients load the others") {
  const repository r;
  for (const char* name : {"a", "b", "c"}) r.add(test::plus(2), name, slow_slo);
  {
    test::child_server s{INFERENCE_SERVER,
                         r.options({"--load-model", "b", "--load-model=c", "--load-model=b"})};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    test::connection c{s.port()};
    CHECK(answer(c, "a") == "404");
    CHECK(answer(c, "b") == "200 3,3,3");
    CHECK(answer(c, "c") == "200 3,3,3");
    CHECK(c.ask("POST", "/v2/repository/models/a/load", "", test::shown_token).first == 200);
    CHECK(answer(c, "a") == "200 3,3,3");
    CHECK(s.stop() == 0);
  }
  test::child_server s{INFERENCE_SERVER, r.options({"--load-model", "*"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  for (const char* name : {"a", "b", "c"}) CHECK(answer(c, name) == "200 3,3,3");
  CHECK(s.stop() == 0);
}

/// The value of a series; -1 without it.
double value(const std::string& page, const std::string& series) {
  const std::size_t at = page.find("\n" + series + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + series.size() + 2));
}
/// A number behind the first of these texts that is behind the others.
std::uint64_t number(const std::string& text, const texts& path) {
  std::size_t at = 0;
  for (const std::string& p : path) {
    at = text.find(p, at);
    REQUIRE_MESSAGE(at != std::string::npos, p);
    at += p.size();
  }
  return std::stoull(text.substr(at));
}

TEST_CASE("Triton's metrics are the statistics, of each version, and go with it") {
  const repository r;
  r.add(test::plus(2), "sum", slow_slo + "version_policy { all { } }");
  r.add(test::plus(5), "sum", "", 2);
  test::child_server s{INFERENCE_SERVER, r.options({"--triton-metrics"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  for (int i = 0; i < 3; ++i) CHECK(answer(c, "sum/versions/1") == "200 3,3,3");
  CHECK(answer(c, "sum") == "200 6,6,6");
  CHECK(answer(c, "sum", R"("parameters":{"timeout":1},)").starts_with("50"));
  CHECK(c.ask("POST", "/v2/models/sum/infer", "{}").first == 400);  // It counts nowhere.
  const std::string page = c.ask("GET", "/metrics").second;
  const std::string stats = c.ask("GET", "/v2/models/stats").second;
  CAPTURE(page);
  CAPTURE(stats);
  for (const std::string version : {"1", "2"}) {
    CAPTURE(version);
    const std::string of = "{model=\"sum\",version=\"" + version + "\"}";
    const auto found = [&](const texts& path) {
      texts all{"\"version\":\"" + version + '"'};
      all.insert(all.end(), path.begin(), path.end());
      return number(stats, all);
    };
    const auto is = [&](const std::string& name, std::uint64_t expected) {
      CAPTURE(name);
      CHECK(value(page, name + of) == static_cast<double>(expected));
    };
    is("nv_inference_request_success", found({"\"success\":{\"count\":"}));
    is("nv_inference_count", found({"\"inference_count\":"}));
    is("nv_inference_exec_count", found({"\"execution_count\":"}));
    is("nv_inference_pending_request_count", 0);
    for (const auto& [metric, part] : {std::pair{"request", "success"},
                                       {"queue", "queue"},
                                       {"compute_input", "compute_input"},
                                       {"compute_infer", "compute_infer"},
                                       {"compute_output", "compute_output"}}) {
      is(std::string{"nv_inference_"} + metric + "_duration_us",
         found({std::string{"\""} + part + "\":{", "\"ns\":"}) / 1000);
    }
    double failures = 0;
    for (const char* reason : {"REJECTED", "CANCELED", "BACKEND", "OTHER"}) {
      failures += value(page, std::string{"nv_inference_request_failure{model=\"sum\",reason=\""} +
                                  reason + "\",version=\"" + version + "\"}");
    }
    CHECK(failures == static_cast<double>(found({"\"fail\":{\"count\":"})));
  }
  CHECK(value(page, "nv_inference_request_success{model=\"sum\",version=\"1\"}") == 3);
  CHECK(value(page, "nv_inference_request_success{model=\"sum\",version=\"2\"}") == 1);
  CHECK(value(page,
              "nv_inference_request_failure{model=\"sum\",reason=\"REJECTED\",version=\"2\"}") ==
        1);
  std::set<std::string> shown;
  for (const std::string& name : test::metric_names(page)) {
    if (name.starts_with("nv_")) shown.insert(name);
  }
  const std::set<std::string> listed = test::documented_metrics(
      SOURCE_DIR "/docs/serve/inference_server.md", "### With --triton-metrics");
  CHECK(test::missing(shown, listed) == "");
  CHECK(test::missing(listed, shown) == "");
  // A version that had gone begins at 0 in both.
  const std::string first = "nv_inference_request_success{model=\"sum\",version=\"1\"}";
  const auto load_with = [&](const std::string& config) {
    put(r.folder + "/sum/config.pbtxt", config);
    return c.ask("POST", "/v2/repository/models/sum/load", "", test::shown_token).first;
  };
  CHECK(load_with(slow_slo) == 200);
  CHECK(test::soon([&] { return value(c.ask("GET", "/metrics").second, first) == -1; }));
  CHECK(load_with(slow_slo + "version_policy { all { } }") == 200);
  CHECK(answer(c, "sum/versions/1") == "200 3,3,3");
  CHECK(value(c.ask("GET", "/metrics").second, first) == 1);
  CHECK(number(c.ask("GET", "/v2/models/stats").second,
               {R"("version":"1")", R"("success":{"count":)"}) == 1);
  CHECK(c.ask("POST", "/v2/repository/models/sum/unload", "", test::shown_token).first == 200);
  CHECK(test::soon([&] {
    return c.ask("GET", "/metrics").second.find("nv_inference_count{") == std::string::npos;
  }));
  CHECK(s.stop() == 0);
}

TEST_CASE("tritonserver's command line starts a server with its ports, metrics and control") {
  const repository r;
  r.add(test::plus(2), "sum", slow_slo);
  test::child_server s{INFERENCE_SERVER,
                       compatible(r, {"--id=ours", "--grpc-port", "8001", "--allow-grpc=false",
                                      "--log-verbose", "1", "--exit-timeout-secs", "5"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(s.told_before.find("options without effect: --grpc-port, --allow-grpc, --log-verbose\n") !=
        std::string::npos);
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(c.ask("GET", "/v2").second.starts_with(R"({"name":"ours","version":")"));
  CHECK(answer(c, "sum") == "200 3,3,3");
  CHECK(c.ask("GET", "/metrics").first == 404);
  test::connection m{test::management_port_of(s)};
  CHECK(value(m.ask("GET", "/metrics").second, "nv_inference_count{model=\"sum\",version=\"1\"}") ==
        1);
  CHECK(m.ask("POST", "/v2/repository/models/sum/load").first == 404);
  CHECK(s.stop() == 0);
}

TEST_CASE(
    "with tritonserver's options a model that fails ends the start, or readiness, or neither") {
  const repository r;
  r.add(test::plus(2), "sum", slow_slo);
  r.add(test::plus(2), "wrong", "max_batch_size: -1\n");
  test::child_server ends{INFERENCE_SERVER, compatible(r, {})};
  CHECK(ends.port() == 0);
  CHECK(ends.told_before.find("wrong/config.pbtxt: max_batch_size: got -1") != std::string::npos);
  CHECK(ends.first_line ==
        "inference_server: models that could not be loaded: 1, and --exit-on-error is true\n");
  CHECK(ends.wait() == 1);
  for (const bool is_strict : {false, true}) {
    CAPTURE(is_strict);
    test::child_server s{
        INFERENCE_SERVER,
        compatible(r, {"--exit-on-error=false", "--strict-readiness", is_strict ? "TRUE" : "0",
                       "--allow-metrics", "off", "--log-info", "false", "--log-error=1"})};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    test::connection c{s.port()};
    CHECK(answer(c, "sum") == "200 3,3,3");
    CHECK(c.ask("GET", "/v2/health/ready").first == (is_strict ? 503 : 200));
    CHECK(c.ask("GET", "/metrics").first == 404);
    CHECK(s.first_line.find(" management ") == std::string::npos);
    CHECK(s.told_before.find("model 'sum': loaded") == std::string::npos);
    CHECK(s.told_before.find("max_batch_size: got -1") != std::string::npos);
    CHECK(s.stop() == 0);
  }
  // With explicit none is loaded that is not named.
  test::child_server none{INFERENCE_SERVER, compatible(r, {"--model-control-mode=explicit"})};
  REQUIRE_MESSAGE(none.port() != 0, none.first_line);
  test::connection c{none.port()};
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(answer(c, "sum") == "404");
  test::connection m{test::management_port_of(none)};
  CHECK(m.ask("POST", "/v2/repository/models/sum/load").first == 200);
  CHECK(answer(c, "sum") == "200 3,3,3");
  CHECK(none.stop() == 0);
}

}  // namespace
}  // namespace cohort::inference::triton_server_test
