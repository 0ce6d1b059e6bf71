// SPDX-License-Identifier: Apache-2.0
// A repository of ONNX models behind the server, as its clients and its operator see it.
#include <cohort/runtime/onnx/session.hpp>

#include <doctest/doctest.h>
#include <formats/onnx_graph.hpp>

#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <support/child_server.hpp>
#include <support/is_sanitized.hpp>
#include <support/log_pipe.hpp>
#include <support/metrics_pages.hpp>
#include <support/onnx_models.hpp>
#include <support/profile_folder.hpp>
#include <support/scratch_file.hpp>
#include <support/soon.hpp>
#include "inference/onnx_repository.hpp"

namespace cohort::inference::repository_server_test {
namespace {

namespace fs = std::filesystem;

using repository = test::onnx_repository;

std::string load(test::connection& c, const std::string& name) {
  const auto [status, body] =
      c.ask("POST", "/v2/repository/models/" + name + "/load", "", test::shown_token);
  return status == 200 ? "" : std::to_string(status) + " " + body;
}
std::string unload(test::connection& c, const std::string& name) {
  const auto [status, body] =
      c.ask("POST", "/v2/repository/models/" + name + "/unload", "", test::shown_token);
  return status == 200 ? "" : std::to_string(status) + " " + body;
}
std::string index(test::connection& c) {
  const auto [status, body] = c.ask("POST", "/v2/repository/index");
  CHECK(status == 200);
  return body;
}

const std::string slow_slo = test::parameter("slo_ms", "60000");

/// One row of `two_by_two`: a is 1.5, 2, 2.5 and b 1, -2, 3, -4, 5.
const std::string two_by_two_body =
    R"({"inputs":[{"name":"a","datatype":"FP32","shape":[1,3],"data":[1.5,2,2.5]},)"
    R"({"name":"b","datatype":"INT32","shape":[1,5],"data":[1,-2,3,-4,5]}]})";

TEST_CASE("models of a folder are served with the tensors that they have") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo + "instance_group { kind: KIND_GPU }\n");
  r.add(test::two_by_two(), "whole", slow_slo + "max_batch_size: 0 dynamic_batching { }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(s.told_before.find("KIND_GPU: ONNX models run on the host ") != std::string::npos);
  CHECK(s.told_before.find("dynamic_batching is ignored: max_batch_size is 0") !=
        std::string::npos);
  test::connection c{s.port()};
  const auto [status, meta] = c.ask("GET", "/v2/models/pair");
  CHECK(status == 200);
  CHECK(meta.find(R"("platform":"onnxruntime_onnx")") != std::string::npos);
  CHECK(meta.find(R"({"name":"b","datatype":"INT32","shape":[-1,5]})") != std::string::npos);
  CHECK(meta.find(R"("slo_ms":60000)") != std::string::npos);
  // The sum of b is 3: added to each of a.
  const auto [answered, body] = c.ask("POST", "/v2/models/pair/infer", two_by_two_body);
  CAPTURE(body);
  CHECK(answered == 200);
  CHECK(body.find("[4.5,5,5.5]") != std::string::npos);
  const std::string two =
      R"({"inputs":[{"name":"b","datatype":"INT32","shape":[2,5],"data":[1,-2,3,-4,5,0,0,0,0,7]},)"
      R"({"name":"a","datatype":"FP32","shape":[2,3],"data":[1.5,2,2.5,-1,0,1]}]})";
  CHECK(c.ask("POST", "/v2/models/pair/infer", two).second.find("[4.5,5,5.5,6,7,8]") !=
        std::string::npos);
  CHECK(body.find("[true,false,true,false,true]") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a bad model says what is wrong, and the others are served") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  r.add(test::mlp(), "cut_off", slow_slo);
  fs::resize_file(r.folder + "/cut_off/1/model.onnx", 100);
  r.add(test::mlp(), "wrong", "max_batch_size: -1\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/good/infer", two_by_two_body).first == 200);
  CHECK(c.ask("GET", "/v2/models/wrong").first == 404);
  const std::string all = index(c);
  CHECK(all.find(R"("name":"good","version":"1","state":"READY")") != std::string::npos);
  CHECK(all.find("max_batch_size: got -1") != std::string::npos);
  CHECK(all.find(R"("name":"cut_off")") != std::string::npos);
  CHECK(c.ask("POST", "/v2/repository/index", R"({"ready":true})").second.find("cut_off") ==
        std::string::npos);
  CHECK(s.told_before.find("wrong/config.pbtxt: max_batch_size: got -1") != std::string::npos);
  // Mended, it is loaded; what is not there never is.
  test::spill(r.folder + "/wrong/config.pbtxt", slow_slo);
  CHECK(load(c, "wrong").empty());
  CHECK(c.ask("GET", "/v2/models/wrong/ready").first == 200);
  CHECK(load(c, "nobody").starts_with("400 "));
  CHECK(load(c, "..%2Fgood").starts_with("40"));
  CHECK(unload(c, "nobody").empty());
  CHECK(s.stop() == 0);
}

std::string base64(const std::string& bytes) {
  constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63U];
    }
  }
  return out;
}

TEST_CASE("a model is loaded from files that a client sends, and its folder is not looked at") {
  const repository r;
  r.add(test::two_by_two(), "kept", slow_slo);
  const std::string own = test::scratch("uploads");
  fs::create_directories(own);
  setenv("TMPDIR", own.c_str(), 1);
  test::child_server s{INFERENCE_SERVER, r.options({"--management-port", "0"})};
  unsetenv("TMPDIR");
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  test::connection management{test::management_port_of(s)};
  const std::string model = base64(formats::to_bytes(test::two_by_two()));
  const std::string config =
      R"("config":"{\"parameters\":{\"slo_ms\":{\"string_value\":\"60000\"}}}")";
  const auto send = [&](test::connection& to, const std::string& name, const std::string& files) {
    const auto [status, body] =
        to.ask("POST", "/v2/repository/models/" + name + "/load",
               R"({"parameters":{)" + config + files + "}}", test::shown_token);
    return status == 200 ? "" : std::to_string(status) + " " + body;
  };
  const std::string good = R"(,"file:3/model.onnx":")" + model + "\"";
  // Longer than other calls may be: a file that the model does not use.
  const std::string large = R"(,"file:3/more.bin":")" + std::string(2'000'000, 'A') + "\"";
  CHECK(send(c, "sent", good + large).empty());
  CHECK(send(management, "sent", good + large).empty());
  CHECK(c.ask("POST", "/v2/models/sent/versions/3/infer", two_by_two_body).first == 200);
  CHECK(index(c).find(R"("name":"sent","version":"3","state":"READY")") != std::string::npos);
  // In the place of a model of the folder, until that is loaded again.
  CHECK(send(c, "kept", good).empty());
  CHECK(c.ask("GET", "/v2/models/kept/versions/3").first == 200);
  CHECK(c.ask("GET", "/v2/models/kept/versions/1").first == 404);
  CHECK(load(c, "kept").empty());
  CHECK(c.ask("GET", "/v2/models/kept/versions/1").first == 200);
  CHECK(c.ask("GET", "/v2/models/kept/versions/3").first == 404);
  // What is wrong changes nothing.
  const std::pair<std::string, std::string> wrong[] = {
      {R"(,"file:3/model.onnx":"AAA*")", "is not valid base64"},
      {R"(,"file:3/model.onnx":"AAAA")", "sent/3/model.onnx"},
      {R"(,"file:../model.onnx":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:1/../model.onnx":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:/1/model.onnx":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:01/model.onnx":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:1/.x":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:1/a/b":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:":"AAAA")", "expected VERSION/FILE"},
      {R"(,"file:1/other.onnx":"AAAA")", "missing: expected a model"}};
  for (const auto& [files, why] : wrong) {
    CAPTURE(files);
    const std::string told = send(c, "sent", files);
    CHECK(told.starts_with("400 "));
    CHECK(told.find(why) != std::string::npos);
    CHECK(told.find(own) == std::string::npos);
    CHECK(c.ask("POST", "/v2/models/sent/infer", two_by_two_body).first == 200);
  }
  std::string many = good;
  for (int i = 0; i < 64; ++i) many += ",\"file:3/" + std::to_string(i) + R"(":"AAAA")";
  CHECK(send(c, "sent", many).find("more than 64 files, expected at most 64") != std::string::npos);
  CHECK(send(c, "..", good).starts_with("400 "));
  CHECK(send(c, "unheard", R"(,"file:1/model.onnx":"AAAA")").starts_with("400 "));
  CHECK(index(c).find("unheard") == std::string::npos);
  // Without a folder nothing else is known of it.
  CHECK(load(c, "sent").find("there is no such model") != std::string::npos);
  CHECK(c.ask("POST", "/v2/models/sent/infer", two_by_two_body).first == 200);
  CHECK(unload(c, "sent").empty());
  CHECK(index(c).find("\"sent\"") == std::string::npos);
  CHECK(fs::is_empty(own));
  CHECK(s.stop() == 0);
  fs::remove_all(own);
}

TEST_CASE("a served model whose new configuration is wrong stays, and log and index tell why") {
  const repository r;
  r.add(test::two_by_two(), "model", slow_slo);
  const test::log_pipe log;
  test::child_server s = log.run(INFERENCE_SERVER, r.options());
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  std::string said = log.read_all();
  const auto is_told = [&](const std::string& what) {
    return test::soon([&] { return (said += log.read_all()).find(what) != std::string::npos; });
  };
  test::spill(r.folder + "/model/config.pbtxt", "max_batch_size: -1\n");
  const std::string why = "model/config.pbtxt: max_batch_size: got -1, expected 0 to 4096";
  CHECK(load(c, "model").find(why) != std::string::npos);
  CHECK(is_told(why + "; model 'model' is served as it was"));
  const std::string all = index(c);
  CAPTURE(all);
  CHECK(all.find(R"("name":"model","version":"1","state":"READY","reason":"as it was; the last )"
                 "load failed: ") != std::string::npos);
  CHECK(all.find(why) != std::string::npos);
  CHECK(c.ask("POST", "/v2/models/model/infer", two_by_two_body).first == 200);
  // However often it is tried, with a log that is full: it serves, and counts what it does not log.
  log.fill();
  CHECK(test::soon([&] {
    CHECK_FALSE(load(c, "model").empty());
    return c.ask("GET", "/metrics")
               .second.find("cohort_log_lines_dropped_total{reason=\"repeated\"} 0\n") ==
           std::string::npos;
  }));
  CHECK(c.ask("POST", "/v2/models/model/infer", two_by_two_body).first == 200);
  CHECK(is_told(" more lines left out: at most 10 of a kind in 1 s"));
  // Without its folder, too.
  fs::remove_all(r.folder + "/model");
  CHECK_FALSE(load(c, "model").empty());
  CHECK(is_told("model: there is no such model; model 'model' is served as it was"));
  CHECK(index(c).find("the last load failed: ") != std::string::npos);
  log.fill();
  CHECK(s.stop() == 0);
}

TEST_CASE(
    "outputs that a configuration does not name are not served, and the others are themselves") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo + R"( output { name: "positive" })");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto [status, body] = c.ask("POST", "/v2/models/pair/infer", two_by_two_body);
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(body.find("[true,false,true,false,true]") != std::string::npos);
  CHECK(body.find("\"sum\"") == std::string::npos);
  CHECK(c.ask("GET", "/v2/models/pair").second.find("\"sum\"") == std::string::npos);
  CHECK(s.stop() == 0);
}

/// Of a metric with its labels; -1 if it is not there.
double value(test::connection& c, const std::string& name) {
  const std::string page = c.ask("GET", "/metrics").second;
  const std::size_t at = page.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
}
double times_out(test::connection& c) {
  double sum = 0;
  for (const char* d : {"0", "1"}) {
    sum += value(
        c, std::string{"cohort_device_changes_total{device=\""} + d + "\",to=\"quarantined\"}");
  }
  return sum;
}

TEST_CASE("a length that a model cannot compute is its request's fault, and takes no device") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  r.add(test::in_pairs(), "in_pairs", slow_slo + test::parameter("max_length", "8"));
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  for (int i = 0; i < 20; ++i) {
    const auto [status, why] =
        c.ask("POST", "/v2/models/in_pairs/infer",
              R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]})");
    CAPTURE(why);
    CHECK(status == 400);
    CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200);
  }
  CHECK(times_out(c) == 0);
  CHECK(c.ask("POST", "/v2/models/in_pairs/infer",
              R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]}]})")
            .first == 200);
  CHECK(s.stop() == 0);
}

TEST_CASE(
    "requests that loop for ever cost a device for a moment each, and then their model alone") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  r.add(test::looping(), "looping", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options({"--policy", "eager"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  const std::string looping =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1e9,0,0,0]}]})";
  const auto ask = [&] {
    test::connection c{s.port()};
    return c.ask("POST", "/v2/models/looping/infer", looping).first;
  };
  // Each keeps a device until it is found out; two of them may have been in one batch.
  test::connection c{s.port()};
  for (int i = 0; i < 60; ++i) {  // Most batches are another model's.
    CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200);
  }
  const bool is_suspended = test::soon([&] {
    std::atomic<int> first{0};
    std::thread beside{[&] { first = ask(); }};
    const int second = ask();
    beside.join();
    CHECK((first == 500 || first == 503));
    CHECK((second == 500 || second == 503));
    return value(c, "cohort_model_suspensions_total{model=\"looping\"}") >= 1;
  });
  REQUIRE(is_suspended);
  // The runtime has let go: without that both devices would be gone.
  CHECK(test::soon(
      [&] { return c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200; }));
  CHECK(times_out(c) >= 2);
  CHECK(s.stop() == 0);
  CHECK(s.read_rest().find("model 'looping': suspended for 10 s: its requests made devices") !=
        std::string::npos);
}

/// The value of a metric without labels; -1 if the server has none of the name.
double metric(std::uint16_t port, const std::string& name) {
  return value(*std::make_unique<test::connection>(port), name);
}
/// Sends a load and does not wait for its answer.
std::unique_ptr<test::connection> begin_load(std::uint16_t port, const std::string& name) {
  auto c = std::make_unique<test::connection>(port);
  c->send("POST /v2/repository/models/" + name + "/load HTTP/1.1\r\nHost: x\r\n" +
          test::shown_token + "Content-Length: 0\r\n\r\n");
  return c;
}
bool is_loading(test::connection& c, const std::string& name) {
  return index(c).find("\"name\":\"" + name +
                       R"(","version":"1","state":"LOADING","reason":"being)") != std::string::npos;
}

TEST_CASE("while a model loads without an end the index answers, and others load and are served") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(metric(s.port(), "cohort_models_loading") == 0);
  r.add(test::endless(), "endless", slow_slo);
  r.add(test::two_by_two(), "other", slow_slo);
  const auto caller = begin_load(s.port(), "endless");
  CHECK(test::soon([&] { return is_loading(c, "endless"); }));
  CHECK(metric(s.port(), "cohort_models_loading") == 1);
  CHECK(c.ask("GET", "/v2/health/live").first == 200);
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(load(c, "other").empty());
  CHECK(load(c, "good").empty());
  CHECK(c.ask("POST", "/v2/models/other/infer", two_by_two_body).first == 200);
  CHECK(load(c, "endless").starts_with(R"(409 {"error":"model 'endless' is being loaded, for )"));
  CHECK(c.ask("POST", "/v2/models/endless/infer", "{}").first == 404);
  // Unloaded, its caller is told so; and it can be loaded again when what runs has let go.
  CHECK(unload(c, "endless").empty());
  const auto [status, why] = caller->answer();
  CHECK(status == 409);
  CHECK(why == R"({"error":"model 'endless' was unloaded while it was being loaded"})");
  CHECK(test::soon([&] { return metric(s.port(), "cohort_loads_abandoned") == 0; }));
  CHECK(unload(c, "endless").empty());
  r.add(test::two_by_two(), "endless", slow_slo);
  CHECK(load(c, "endless").empty());
  CHECK(s.stop() == 0);
}

TEST_CASE("a model that is loaded from a client's files is in the index before it is served") {
  const repository r;
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  const std::string body = R"({"parameters":{"config":"{}","file:1/model.onnx":")" +
                           base64(formats::to_bytes(test::endless())) + "\"}}";
  test::connection caller{s.port()};
  caller.send("POST /v2/repository/models/sent/load HTTP/1.1\r\nHost: x\r\n" + test::shown_token +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  test::connection c{s.port()};
  CHECK(test::soon([&] {
    return index(c).find(R"({"name":"sent","state":"LOADING","reason":"being loaded)") !=
           std::string::npos;
  }));
  CHECK(unload(c, "sent").empty());
  CHECK(caller.answer().first == 409);
  CHECK(index(c) == "[]");
  CHECK(s.stop() == 0);
}

TEST_CASE("a load is abandoned when its time is over: answer, index, metrics and log tell") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  r.add(test::endless(), "endless", slow_slo);
  // It holds up the start no longer than any other load.
  test::child_server s{INFERENCE_SERVER, r.options({"--load-timeout-s", "1"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  const std::string told =
      "model 'endless' is not loaded after 1 s, --load-timeout-s: its load is abandoned";
  CHECK(s.told_before.find(told) != std::string::npos);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/good/infer", two_by_two_body).first == 200);
  CHECK(index(c).find(R"("name":"endless","state":"UNAVAILABLE","reason":"model 'endless')") !=
        std::string::npos);
  CHECK(value(c, "cohort_load_timeouts_total") == 1);
  // ONNX Runtime ends it, so that it may be tried again, and once more.
  CHECK(test::soon([&] { return metric(s.port(), "cohort_loads_abandoned") == 0; }));
  CHECK(load(c, "endless") == "504 {\"error\":\"" + told + "\"}");
  CHECK(value(c, "cohort_load_timeouts_total") == 2);
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(test::soon([&] { return metric(s.port(), "cohort_loads_abandoned") == 0; }));
  CHECK(index(c).find("its load, which was abandoned, has ended after ") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a load that nothing ends keeps its thread alone, and the server ends without it") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  r.add(test::stuck(), "stuck", slow_slo + test::parameter("memory_mb", "400"));
  test::child_server s{INFERENCE_SERVER, r.options({"--load-timeout-s", "0.5", "--model-memory-mb",
                                                    "512", "--drain-timeout-s", "5"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(metric(s.port(), "cohort_loads_abandoned") == 1);
  CHECK(metric(s.port(), "cohort_models_loading") == 0);
  CHECK(
      load(c, "stuck")
          .starts_with(
              R"(409 {"error":"model 'stuck': a load of it that was abandoned has not ended after )"));
  CHECK(load(c, "good").empty());
  CHECK(c.ask("POST", "/v2/models/good/infer", two_by_two_body).first == 200);
  CHECK(c.ask("GET", "/v2/health/live").first == 200);
  // Its memory counts until it ends.
  r.add(test::mlp(), "large", slow_slo + test::parameter("memory_mb", "300"));
  CHECK(load(c, "large").find("needs 300 MB, and others have 400 of 512 MB") != std::string::npos);
  CHECK(unload(c, "stuck").empty());
  CHECK(s.stop() == 3);
  CHECK(s.read_rest().ends_with(
      "not waiting for what hangs: left 0 requests and 0 devices that hang, and 1 load that "
      "hangs\n"));
}

TEST_CASE("a drain tells those who wait for loads that nothing ends, and does not wait either") {
  for (const bool is_unloaded : {false, true}) {
    CAPTURE(is_unloaded);
    const repository r;
    r.add(test::two_by_two(), "good", slow_slo);
    test::child_server s{INFERENCE_SERVER,
                         r.options({"--management-port", "0", "--drain-timeout-s", "3600"})};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    const std::uint16_t management = test::management_port_of(s);
    r.add(test::stuck(), "stuck", slow_slo);
    r.add(test::stuck(), "stuck_too", slow_slo);
    // The server drains with no other client than that of the management port, too.
    const auto caller = begin_load(management, "stuck");
    std::unique_ptr<test::connection> other;
    {
      test::connection c{management};
      CHECK(test::soon([&] { return is_loading(c, "stuck"); }));
      if (is_unloaded) {
        CHECK(unload(c, "stuck").empty());
        CHECK(caller->answer().first == 409);
      } else {
        other = begin_load(s.port(), "stuck_too");
        CHECK(test::soon([&] { return is_loading(c, "stuck_too"); }));
      }
    }
    CHECK(s.stop() == 3);
    const std::pair told{503, std::string{R"({"error":"draining"})"}};
    if (!is_unloaded) {
      CHECK(caller->answer() == told);
      CHECK(other->answer() == told);
    }
    const std::string said = s.read_rest();
    CAPTURE(said);
    CHECK(said.ends_with(std::string{"left 0 requests and 0 devices that hang, and "} +
                         (is_unloaded ? "1 load that hangs\n" : "2 loads that hang\n")));
    CHECK(said.find("load it again") == std::string::npos);
  }
}

TEST_CASE("a drain with a caller of the management port alone tells it") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options({"--management-port", "0"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  r.add(test::stuck(), "stuck", slow_slo);
  const std::uint16_t management = test::management_port_of(s);
  const auto caller = begin_load(management, "stuck");
  {
    test::connection c{management};
    CHECK(test::soon([&] { return is_loading(c, "stuck"); }));
  }
  CHECK(s.stop() == 3);
  CHECK(caller->answer() == std::pair{503, std::string{R"({"error":"draining"})"}});
}

TEST_CASE("a model that hangs at the start is named, and holds up neither others nor the start") {
  const repository r;
  r.add(test::endless(), "endless", slow_slo);
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CAPTURE(s.told_before);
  CHECK(s.told_before.find("model 'endless': still loading after 10 s\n") != std::string::npos);
  CHECK(s.told_before.find("model 'good': loaded, version 1, in ") != std::string::npos);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/good/infer", two_by_two_body).first == 200);
  CHECK(is_loading(c, "endless"));
  CHECK(c.ask("GET", "/v2/health/ready") ==
        std::pair{503, std::string{R"({"error":"starting: models still loading: 1"})"}});
  CHECK(unload(c, "endless").empty());
  CHECK(test::soon([&] { return c.ask("GET", "/v2/health/ready").first == 200; }));
  CHECK(test::soon([&] { return metric(s.port(), "cohort_loads_abandoned") == 0; }));
  CHECK(unload(c, "good").empty());
  CHECK(s.stop() == 0);
  const std::string said = s.read_rest();
  CAPTURE(said);
  CHECK(said.find("model 'endless': unloaded while it was being loaded, in ") != std::string::npos);
  CHECK(said.find("model 'endless': its load, which was given up, has ended after ") !=
        std::string::npos);
  CHECK(said.find("model 'good': unloaded, version 1, in ") != std::string::npos);
  for (const char* untrue : {"load it again", "still loading"}) {
    CAPTURE(untrue);
    CHECK(said.find(untrue) == std::string::npos);
  }
}

TEST_CASE("a drain does not wait for a load: its caller is told, and so is who asks for one then") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  r.add(test::endless(), "endless", slow_slo);
  test::connection c{s.port()};
  const auto caller = begin_load(s.port(), "endless");
  CHECK(test::soon([&] { return is_loading(c, "endless"); }));
  CHECK(s.stop() == 0);  // Nobody is left without an answer.
  const auto [status, why] = caller->answer();
  CHECK(status == 503);
  CHECK(why == R"({"error":"draining"})");
}

TEST_CASE("answers do not say where the repository lies, and the log does") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  std::string weights;
  r.add(test::mlp(), "cut_off", slow_slo);
  fs::resize_file(r.folder + "/cut_off/1/model.onnx", 100);
  r.add(test::mlp(), "wrong", "max_batch_size: -1\n");
  r.add(test::with_external(test::mlp(), "w.bin", weights), "short", slow_slo);
  test::spill(r.folder + "/short/1/w.bin", "short");
  r.add(test::with_external(test::mlp(), "w.bin", weights), "secret", slow_slo);
  const std::string outside = test::scratch("outside");
  test::spill(outside, weights);
  fs::create_hard_link(outside, r.folder + "/secret/1/w.bin");
  fs::create_directory(r.folder + "/linked");
  fs::create_directory_symlink(fs::absolute(r.folder) / "good/1", r.folder + "/linked/1");
  std::string all = index(c);
  for (const char* name : {"cut_off", "wrong", "short", "secret", "linked"}) {
    CAPTURE(name);
    const std::string why = load(c, name);
    CAPTURE(why);
    CHECK(why.find(std::string{"400 {\"error\":\""} + name + "/") == 0);
    all += why + index(c);
  }
  CHECK(all.find("external data 'w.bin' is refused: it has hard links outside") !=
        std::string::npos);
  const std::string place = fs::path{r.folder}.filename().string();
  CHECK(all.find(place) == std::string::npos);
  CHECK(all.find("/tmp") == std::string::npos);
  CHECK(all.find("cohort-") == std::string::npos);
  fs::remove(outside);  // The weights have one name now.
  CHECK(load(c, "secret").empty());
  const std::string aside = r.folder + "_aside";
  fs::rename(r.folder, aside);
  CHECK(load(c, "good").find(place) == std::string::npos);
  fs::rename(aside, r.folder);
  CHECK(s.stop() == 0);
  CHECK(s.read_rest().find(r.folder + ": wrong/config.pbtxt: max_batch_size: got -1") !=
        std::string::npos);
}

TEST_CASE("without an SLO no request is given up that does not ask for it") {
  const repository r;
  r.add(test::two_by_two(), "none");
  r.add(test::two_by_two(), "queue",
        "max_batch_size: 4 dynamic_batching { default_queue_policy { default_timeout_microseconds: "
        "40000000 max_queue_size: 7 } }");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string none = c.ask("GET", "/v2/models/none").second;
  CHECK(none.find("\"has_deadline\":false") != std::string::npos);
  CHECK(c.ask("POST", "/v2/models/none/infer", two_by_two_body).first == 200);
  std::string hurried = two_by_two_body;
  hurried.insert(1, R"("parameters":{"timeout":1},)");
  CHECK(c.ask("POST", "/v2/models/none/infer", hurried).first >= 503);
  // The time-out and a largest batch.
  const std::string queue = c.ask("GET", "/v2/models/queue").second;
  CHECK(queue.find("\"slo_ms\":4000") != std::string::npos);
  CHECK(queue.find("\"has_deadline\":true") != std::string::npos);
  CHECK(c.ask("GET", "/v2/models/queue/config").second.find("\"max_queue_size\": 7") !=
        std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a server that serves no model is not ready, unless it is told to be") {
  const repository r;
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/health/ready") ==
        std::pair{503, std::string{R"({"error":"no model is served"})"}});
  r.add(test::two_by_two(), "m");
  CHECK(load(c, "m").empty());
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  CHECK(unload(c, "m").empty());
  CHECK(c.ask("GET", "/v2/health/ready").first == 503);
  CHECK(s.stop() == 0);
  fs::remove_all(r.folder + "/m");
  test::child_server empty{INFERENCE_SERVER, r.options({"--ready-without-models"})};
  REQUIRE_MESSAGE(empty.port() != 0, empty.first_line);
  CHECK(test::connection{empty.port()}.ask("GET", "/v2/health/ready").first == 200);
  CHECK(empty.stop() == 0);
}

TEST_CASE("an SLO that no request can meet is refused with the least one") {
  const repository r;
  r.add(test::mlp(), "m", test::parameter("slo_ms", "0.001"));
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(load(c, "m").find("model 'm': slo_ms: got 0.001") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a load may bring a configuration, which stands for the file's until the next load") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto load_as = [&](const std::string& config) {
    return c.ask("POST", "/v2/repository/models/pair/load",
                 R"({"parameters":{"config":")" + config + "\"}}", test::shown_token);
  };
  CHECK(
      load_as(R"({\"max_batch_size\":2,\"parameters\":{\"slo_ms\":{\"string_value\":\"777\"}}})") ==
      std::pair{200, std::string{"{}"}});
  CHECK(c.ask("GET", "/v2/models/pair").second.find(R"("slo_ms":777)") != std::string::npos);
  CHECK(c.ask("GET", "/v2/models/pair/config").second.find("\"max_batch_size\": 2") !=
        std::string::npos);
  CHECK(load_as(R"({\"max_batch_size\":-2})")
            .second.find("pair: parameters.config: max_batch_size: got -2") != std::string::npos);
  CHECK(load(c, "pair").empty());
  CHECK(c.ask("GET", "/v2/models/pair").second.find(R"("slo_ms":60000)") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a load that fails leaves what was served") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  test::spill(r.folder + "/pair/1/model.onnx", "no model");
  CHECK(load(c, "pair").starts_with("400 "));
  CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200);
  CHECK(index(c).find("\"state\":\"READY\",\"reason\":\"as it was; the last load failed: ") !=
        std::string::npos);
  CHECK(unload(c, "pair").empty());
  CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 404);
  CHECK(s.stop() == 0);
}

TEST_CASE("the file of a served model's weights may be overwritten, cut and emptied") {
  const repository r;
  std::string weights;
  std::string others;
  static_cast<void>(test::with_external(test::plus(5), "w.bin", others));
  r.add(test::with_external(test::plus(2), "w.bin", weights), "sum", slow_slo);
  const std::string file = r.folder + "/sum/1/w.bin";
  test::spill(file, weights);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto answer = [&] {
    const std::string x = R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,1],"data":[1]}]})";
    const auto [status, body] = c.ask("POST", "/v2/models/sum/infer", x);
    const std::size_t at = body.find("\"data\":[");
    return std::to_string(status) + " " + (at == std::string::npos ? body : body.substr(at + 8, 5));
  };
  CHECK(answer() == "200 3,3,3");
  std::fstream{file, std::ios::in | std::ios::out | std::ios::binary} << others;
  CHECK(answer() == "200 3,3,3");
  fs::resize_file(file, 100);
  CHECK(answer() == "200 3,3,3");
  fs::resize_file(file, 0);
  CHECK(answer() == "200 3,3,3");
  CHECK(load(c, "sum").starts_with("400 "));  // And what was served goes on.
  CHECK(answer() == "200 3,3,3");
  test::spill(file, others);
  CHECK(load(c, "sum").empty());
  CHECK(answer() == "200 6,6,6");
  CHECK(s.stop() == 0);
}

TEST_CASE("versions are asked for by their numbers, the highest by none") {
  const repository r;
  r.add(test::mlp(), "m", slow_slo + " version_policy { all {} }", 1);
  r.add(test::two_by_two(), "m", "", 3);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/m/infer", two_by_two_body).first == 200);
  CHECK(c.ask("POST", "/v2/models/m/versions/3/infer", two_by_two_body).first == 200);
  CHECK(c.ask("POST", "/v2/models/m/versions/1/infer", two_by_two_body).first == 400);
  CHECK(c.ask("GET", "/v2/models/m/versions/2").first == 404);
  CHECK(c.ask("GET", "/v2/models/m/versions/1").second.find(R"("shape":[-1,32])") !=
        std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("models are loaded, reloaded and unloaded under load, and no other model notices") {
  const repository r;
  r.add(test::two_by_two(), "steady", slow_slo);
  r.add(test::mlp(), "moving", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  std::atomic<bool> is_over{false};
  std::atomic<int> lost{0};
  std::atomic<int> answered{0};
  std::atomic<int> strange{0};
  std::string x = "[0";
  for (int i = 1; i < 32; ++i) x += ",0.5";
  const std::string moving =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,32],"data":)" + x + "]}]}";
  std::vector<std::thread> clients;
  for (int k = 0; k < 2; ++k) {
    clients.emplace_back([&] {
      test::connection c{s.port()};
      while (!is_over) {
        if (c.ask("POST", "/v2/models/steady/infer", two_by_two_body).first != 200) ++lost;
        ++answered;
        const int status = c.ask("POST", "/v2/models/moving/infer", moving).first;
        if (status != 200 && status != 404) ++strange;
      }
    });
  }
  test::connection c{s.port()};
  for (int i = 0; i < 30; ++i) {
    CHECK(load(c, "moving").empty());
    if (i % 5 == 4) {
      CHECK(unload(c, "moving").empty());
      CHECK(load(c, "moving").empty());
    }
  }
  is_over = true;
  for (std::thread& t : clients) t.join();
  CHECK(lost == 0);
  CHECK(strange == 0);
  CHECK(answered > 0);
  CHECK(s.stop() == 0);
}

TEST_CASE("a model that does not fit the memory is refused with how much there is") {
  const repository r;
  r.add(test::two_by_two(), "small", slow_slo);
  r.add(test::mlp(), "large", slow_slo + test::parameter("memory_mb", "900"));
  test::child_server s{INFERENCE_SERVER, r.options({"--model-memory-mb", "512"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/models/small/ready").first == 200);
  const std::string refused = load(c, "large");
  CAPTURE(refused);
  CHECK(refused.find("needs 900 MB, and others have 0 of 512 MB") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE(
    "under a plan batches are no larger than the configuration says, and SLOs that differ are "
    "told") {
  const repository r;
  r.add(test::two_by_two(), "a", slow_slo + "max_batch_size: 2\n");
  r.add(test::two_by_two(), "b");
  const test::profile_folder profile;  // Measured up to batches of 8.
  profile.write("slo.csv", "model,slo_ms,mem_mb\na,9000,600\nb,9000,700\n");
  profile.write("plan.json", test::plan_of_both(9000, 9000));
  test::child_server s{INFERENCE_SERVER,
                       {"--repository", r.folder, "--cache", "off", "--profile", profile.path(),
                        "--plan", profile.path() + "/plan.json"}};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  std::string a;
  std::string b;
  for (int row = 0; row < 8; ++row) {
    a += row == 0 ? "1.5,2,2.5" : ",1.5,2,2.5";
    b += row == 0 ? "1,-2,3,-4,5" : ",1,-2,3,-4,5";
  }
  const std::string body = R"({"inputs":[{"name":"a","datatype":"FP32","shape":[8,3],"data":[)" +
                           a + R"(]},{"name":"b","datatype":"INT32","shape":[8,5],"data":[)" + b +
                           "]}]}";
  CHECK(c.ask("POST", "/v2/models/a/infer", body).first == 200);
  const std::string stats = c.ask("GET", "/v2/models/a/stats").second;
  CAPTURE(stats);
  CHECK(stats.find("\"batch_size\":2") != std::string::npos);
  for (const char* larger : {"3", "4", "5", "6", "7", "8"}) {
    CHECK(stats.find(std::string{"\"batch_size\":"} + larger) == std::string::npos);
  }
  std::string told;
  for (int line = 0; line < 8 && told.find("SLO 9000 ms, as slo.csv says") == std::string::npos;
       ++line) {
    told += s.read_line();
  }
  CAPTURE(told);
  CHECK(told.find("a/config.pbtxt says 60000 ms") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a folder that is none, and a model that does not take rows of the default length") {
  test::child_server none{INFERENCE_SERVER, {"--repository", test::scratch("no_folder")}};
  CHECK(none.wait() == 2);
  const repository r;
  r.add(test::masked_encoder(), "short");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string why = load(c, "short");
  CAPTURE(why);
  CHECK(why.find("short/1/model.onnx: ") != std::string::npos);
  CHECK(why.find("of length 512: parameters max_length in config.pbtxt says another") !=
        std::string::npos);
  CHECK(s.stop() == 0);
}

/// x [batch, 1] -> y [batch, columns].
formats::onnx_model wide(std::int64_t columns) {
  test::onnx_builder b{"wide", 5};
  const formats::onnx_dimension batch{.name = "batch"};
  const std::string x =
      b.input("x", runtime::data_type::f32, {batch, formats::onnx_dimension{.value = 1}});
  b.node("MatMul", {x, b.weights({1, columns}, 1)}, {}, "y");
  b.output("y", runtime::data_type::f32, {batch, formats::onnx_dimension{.value = columns}});
  return b.done();
}
std::string wide_body(int rows) {
  std::string data = "1";
  for (int i = 1; i < rows; ++i) data += ",1";
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(rows) +
         R"(,1],"data":[)" + data + "]}]}";
}
TEST_CASE("a folder that vanishes, or has too many models, is no end of what is served") {
  const repository r;
  r.add(test::two_by_two(), "good", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string aside = r.folder + "_aside";
  fs::rename(r.folder, aside);
  CHECK(index(c).find(R"("name":"good","version":"1","state":"READY")") != std::string::npos);
  const std::string why = load(c, "good");
  CAPTURE(why);
  CHECK(why.starts_with("4"));
  CHECK(why.find("cannot be read") != std::string::npos);
  fs::rename(aside, r.folder);
  for (int i = 0; i < 1002; ++i) fs::create_directory(r.folder + "/m" + std::to_string(i));
  CHECK(index(c).find(R"("name":"good","version":"1","state":"READY")") != std::string::npos);
  CHECK(c.ask("POST", "/v2/models/good/infer", two_by_two_body).first == 200);
  CHECK(s.stop() == 0);
}

TEST_CASE("requests whose outputs the memory does not hold are refused, and the server lives on") {
  const repository r;
  // 4 MiB a row, 256 MiB a request of 64.
  r.add(wide(1 << 20), "wide", slow_slo + "max_batch_size: 64 dynamic_batching { }\n");
  // First as a ledger of 300 MiB counts it; then as the system says it, without one.
  for (const std::string memory : {"300", "1000000"}) {
    CAPTURE(memory);
    if (memory != "300" && test::is_sanitized)
      continue;  // There an allocation that fails ends the program.
    test::child_server s{INFERENCE_SERVER,
                         r.options({"--request-memory-mib", memory, "--model-memory-mb", "600"})};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    std::ifstream sizes{"/proc/" + std::to_string(s.pid()) + "/statm"};
    rlim_t pages = 0;
    sizes >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{700} << 20U);
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    REQUIRE(prlimit(s.pid(), RLIMIT_AS, &limit, nullptr) == 0);
    std::vector<std::unique_ptr<test::connection>> all;
    for (int i = 0; i < 4; ++i) {
      test::connection& c = *all.emplace_back(std::make_unique<test::connection>(s.port()));
      const std::string body = wide_body(64);
      c.send("POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body);
    }
    int refused = 0;
    for (const auto& c : all) {
      c->wait_for_bytes();
      const int status = c->status();
      CAPTURE(status);
      CHECK((status == 200 || status == 429 || status == 500 || status == 503));
      refused += status == 200 ? 0 : 1;
    }
    CHECK(refused >= 1);
    if (memory == "300") {
      CHECK(refused == 3);
    }
    all.clear();
    CHECK(test::connection{s.port()}.ask("GET", "/v2/health/live").first == 200);
    CHECK(s.stop() == 0);
  }
}

TEST_CASE(
    "a large answer is written while its client takes it, and others are answered meanwhile") {
  const repository r;
  r.add(wide(1 << 20), "wide", slow_slo + "max_batch_size: 16 dynamic_batching { }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection large{s.port()};
  const std::string body = wide_body(8);
  large.send("POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body);
  REQUIRE(large.wait_for_bytes());
  // Its JSON is some 80 MB, its outputs 32 MiB: only these are there.
  const double held = metric(s.port(), "cohort_held_bytes");
  CHECK(held >= 32.0 * (1 << 20));
  CHECK(held < 33.0 * (1 << 20));
  CHECK(test::connection{s.port()}.ask("GET", "/v2/health/live").first == 200);
  const auto [status, answer] = large.answer();
  CHECK(status == 200);
  CHECK(answer.size() > std::size_t{64} << 20U);
  CHECK(answer.ends_with("]}]}"));
  CHECK(std::ranges::count(answer, ',') >= 8 * (1 << 20) - 1);
  while (metric(s.port(), "cohort_held_bytes") > 1 << 20) std::this_thread::yield();
  CHECK(s.stop() == 0);
}

/// Lines of the page of metrics that name a model.
std::string lines_of(std::uint16_t port, const std::string& model) {
  std::istringstream page{test::connection{port}.ask("GET", "/metrics").second};
  std::string all;
  for (std::string line; std::getline(page, line);) {
    if (line.find("model=\"" + model) != std::string::npos) all += line + '\n';
  }
  return all;
}

TEST_CASE("the series of a model are there while it is served, and no longer") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  for (int i = 0; i < 40; ++i) r.add(test::two_by_two(), "m" + std::to_string(i), slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options({"--models", "pair"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200);
  const std::string page = c.ask("GET", "/metrics").second;
  for (const char* series :
       {"cohort_requests_total{model=\"pair\",outcome=\"completed\"} 1",
        "cohort_queue_seconds_count{model=\"pair\"} 1",
        "cohort_compute_seconds_count{model=\"pair\"} 1",
        "cohort_requests_in_flight{model=\"pair\"} 0", "cohort_latency_factor{model=\"pair\"}",
        "cohort_device_state{device=\"1\",state=\"healthy\"} 1", "cohort_devices_advised",
        "cohort_setting_window{window=\"eager\"}", "cohort_wake_margin_seconds",
        "cohort_handover_seconds{way=\"in\"}"}) {
    CAPTURE(series);
    CHECK(page.find(std::string{"\n"} + series) != std::string::npos);
  }
  if (test::has_promtool()) CHECK(test::promtool_complaints(page) == "");
  CHECK(unload(c, "pair").empty());
  CHECK(test::soon([&] { return lines_of(s.port(), "pair").empty(); }));
  for (int i = 0; i < 40; ++i) {
    const std::string name = "m" + std::to_string(i);
    CHECK(load(c, name).empty());
    CHECK_FALSE(lines_of(s.port(), name + '"').empty());
    CHECK(unload(c, name).empty());
  }
  CHECK(test::soon([&] { return lines_of(s.port(), "").empty(); }));
  CHECK(load(c, "pair").empty());
  CHECK(lines_of(s.port(), "pair")
            .find("cohort_requests_total{model=\"pair\",outcome=\"completed\"} 0\n") !=
        std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a model that is unloaded while a client takes its answer is counted until that ends") {
  const repository r;
  r.add(wide(1 << 20), "wide", slow_slo + "max_batch_size: 16 dynamic_batching { }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string body = wide_body(8);
  {
    test::connection large{s.port()};
    large.send("POST /v2/models/wide/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
    REQUIRE(large.wait_for_bytes());
    CHECK(unload(c, "wide").empty());
    CHECK(c.ask("POST", "/v2/models/wide/infer", body).first == 404);
    CHECK(lines_of(s.port(), "wide").find("outcome=\"completed\"} 8\n") != std::string::npos);
    CHECK(load(c, "wide").empty());  // The same name: it goes on counting.
    CHECK(unload(c, "wide").empty());
    CHECK(lines_of(s.port(), "wide").find("outcome=\"completed\"} 8\n") != std::string::npos);
    CHECK(large.answer().first == 200);
  }
  CHECK(test::soon([&] { return lines_of(s.port(), "wide").empty(); }));
  CHECK(s.stop() == 0);
}

/// Rows of `quantised`: of each 4 values up to its number.
std::string quantised_body(const std::vector<double>& rows) {
  std::string values;
  for (const double x : rows) {
    for (int i = 1; i <= 4; ++i) {
      values += (values.empty() ? "" : ",") + std::to_string(x * i / 4);
    }
  }
  return R"({"inputs":[{"name":"x","datatype":"FP32","shape":[)" + std::to_string(rows.size()) +
         R"(,4],"data":[)" + values + "]}]}";
}
TEST_CASE("without dynamic_batching each request runs alone and whole, whoever else asks") {
  const repository r;
  r.add(test::quantised(), "stated", slow_slo + "max_batch_size: 4\n");
  r.add(test::quantised(), "absent", slow_slo);
  r.add(test::quantised(), "plain");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(s.told_before.find("model 'plain': it quantises each run by its values") !=
        std::string::npos);
  test::connection c{s.port()};
  const auto outputs = [](const std::string& answer) {
    const std::size_t at = answer.find("\"outputs\"");
    return at == std::string::npos ? answer : answer.substr(at);
  };
  for (const std::string name : {"stated", "absent", "plain"}) {
    CAPTURE(name);
    const std::string path = "/v2/models/" + name + "/infer";
    // What is small beside 1000 is 0 where both run together, as they are to.
    CHECK(c.ask("POST", path, quantised_body({0.5, 1000})).second.find("[0,0,0,0,") !=
          std::string::npos);
    std::map<double, std::string> alone;
    for (const double x : {0.5, 1000.0}) {
      const auto [status, answer] = c.ask("POST", path, quantised_body({x}));
      CHECK(status == 200);
      alone[x] = outputs(answer);
    }
    std::atomic<int> differ{0};
    std::vector<std::thread> clients;
    for (int k = 0; k < 8; ++k) {
      clients.emplace_back([&, k] {
        test::connection mine{s.port()};
        const double x = k % 2 == 0 ? 0.5 : 1000;
        const std::string body = quantised_body({x});
        for (int i = 0; i < 50; ++i) {
          if (outputs(mine.ask("POST", path, body).second) != alone.at(x)) ++differ;
        }
      });
    }
    for (std::thread& t : clients) t.join();
    CHECK(differ == 0);
  }
  CHECK(c.ask("GET", "/v2/models/absent").second.find(R"("shape":[-1,4])") != std::string::npos);
  const std::string config = c.ask("GET", "/v2/models/absent/config").second;
  CAPTURE(config);
  CHECK(config.find(R"("max_batch_size": 0)") != std::string::npos);
  CHECK(config.find(R"("dims": [-1, 4])") != std::string::npos);
  CHECK(config.find("dynamic_batching") == std::string::npos);
  // As many rows as there may be, in one run.
  const std::vector<double> most(64, 1);
  CHECK(c.ask("POST", "/v2/models/absent/infer", quantised_body(most)).first == 200);
  CHECK(c.ask("POST", "/v2/models/stated/infer", quantised_body(most)).first == 400);
  CHECK(c.ask("GET", "/v2/models/absent/stats").second.find(R"({"batch_size":1,)") !=
        std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("without max_batch_size tensors are whole, in the shapes that the configuration has") {
  const repository r;
  r.add(test::quantised(), "flat",
        slow_slo +
            "input { name: 'x' dims: [2, 2] reshape { shape: [1, 4] } }"
            "output { name: 'y' dims: 4 reshape { shape: [1, 4] } }\n");
  r.add(test::sum_of_rows(), "sum", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto infer = [&](const std::string& name, const std::string& shape,
                         const std::string& data) {
    return c.ask("POST", "/v2/models/" + name + "/infer",
                 R"({"inputs":[{"name":"x","datatype":"FP32","shape":)" + shape + R"(,"data":)" +
                     data + "}]}");
  };
  const auto [status, flat] = infer("flat", "[2,2]", "[0,51,102,255]");
  CAPTURE(flat);
  CHECK(status == 200);
  CHECK(flat.find(R"("shape":[4],"data":[0,51,102,255])") != std::string::npos);
  CHECK(infer("flat", "[1,4]", "[0,51,102,255]").first == 400);
  // The first dimension of its input is no number of rows: its output does not have it.
  const auto [worked, sum] = infer("sum", "[3,4]", "[1,2,3,4,2,3,4,5,6,7,8,9]");
  CAPTURE(sum);
  CHECK(worked == 200);
  CHECK(sum.find(R"("shape":[1,4],"data":[9,12,15,18])") != std::string::npos);
  CHECK(s.stop() == 0);
}

TEST_CASE("a request has no more rows than max_batch_size of its model, where that is stated") {
  const repository r;
  r.add(wide(2), "stated", slow_slo + "max_batch_size: 3\n");
  r.add(wide(2), "usual");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("POST", "/v2/models/stated/infer", wide_body(3)).first == 200);
  const auto [status, why] = c.ask("POST", "/v2/models/stated/infer", wide_body(4));
  CHECK(status == 400);
  CHECK(why.find("inputs[0].shape[0] is 4, expected 1 to 3, the rows that model 'stated' takes") !=
        std::string::npos);
  CHECK(c.ask("POST", "/v2/models/usual/infer", wide_body(64)).first == 200);  // In batches.
  CHECK(s.stop() == 0);
}

TEST_CASE("a repository on a GPU starts, or says in one line why it cannot") {
  const repository r;
  r.add(test::two_by_two(), "pair", slow_slo);
  test::child_server s{INFERENCE_SERVER, r.options({"--executor", "cuda"})};
  if (s.port() != 0) {
    test::connection c{s.port()};
    CHECK(c.ask("POST", "/v2/models/pair/infer", two_by_two_body).first == 200);
    CHECK(s.stop() == 0);
    return;
  }
  CHECK(s.first_line.find("--executor: cuda is not possible here: ONNX Runtime ") !=
        std::string::npos);
  CHECK(s.wait() == 2);
}

}  // namespace
}  // namespace cohort::inference::repository_server_test
