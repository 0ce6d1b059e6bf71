// SPDX-License-Identifier: Apache-2.0
// The inference server as a stranger's client sees it: a child process, spoken to over sockets.
#include <doctest/doctest.h>
#include <cohort/serve/load.hpp>
#include <registry/policy.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <models/registry.hpp>
#include <registry/policy.hpp>
#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/is_sanitized.hpp>
#include <support/random_source.hpp>
#include <support/scratch_file.hpp>

namespace cohort::serve::server_test {
namespace {

// What a server refuses at its start, it refuses in its first thread: such cases skip
// ThreadSanitizer, under which each start takes a second.

class child : public test::child_server {
 public:
  explicit child(std::vector<std::string> options)
      : child_server{INFERENCE_SERVER, std::move(options)} {}
};
using test::connection;

std::string infer_body(int rows, const std::string& more = "") {
  std::string data;
  for (int i = 0; i < rows; ++i) data += i == 0 ? "1" : ",1";
  return "{" + more + R"("inputs":[{"name":"input","datatype":"FP32","shape":[)" +
         std::to_string(rows) + R"(,1],"data":[)" + data + "]}]}";
}

/// Eager and with a long SLO: what is tested must not depend on how busy the machine is.
const std::vector<std::string> emulated{
    "--executor", "emulated", "--devices",     "2",        "--policy",
    "eager",      "--slo-ms", "ResNet50=5000", "--models", "ResNet50,DenseNet121"};

TEST_CASE("every policy is served, and the server says which") {
  for (const registry::listed_name& n : registry::policy_names().all()) {
    std::vector<std::string> options = emulated;
    options[5] = n.sample();
    child server{options};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    CHECK(server.first_line.ends_with("| policy " + n.sample() + "\n"));
    connection c{server.port()};
    CHECK(c.ask("GET", "/v2").second.find("\"policy\":\"" + n.sample() + "\"") !=
          std::string::npos);
    CHECK(server.stop() == 0);
  }
}

TEST_CASE("the server answers the protocol's questions") {
  child server{emulated};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(c.ask("GET", "/v2/health/live").first == 200);
  CHECK(c.ask("GET", "/v2/health/ready").first == 200);
  const auto [status, about] = c.ask("GET", "/v2");
  CHECK(status == 200);
  CHECK(about.find("\"emulated\":true") != std::string::npos);
  const auto model = c.ask("GET", "/v2/models/ResNet50");
  CHECK(model.first == 200);
  CHECK(model.second.find("\"slo_ms\":5000") != std::string::npos);
  CHECK(c.ask("GET", "/v2/models/ResNet50/versions/1/ready").first == 200);
  const auto answer = c.ask("POST", "/v2/models/ResNet50/infer", infer_body(3, R"("id":"z",)"));
  CHECK(answer.first == 200);
  CHECK(answer.second.find("\"id\":\"z\"") != std::string::npos);
  const auto metrics = c.ask("GET", "/metrics");
  CHECK(
      metrics.second.find("cohort_requests_total{model=\"ResNet50\",outcome=\"completed\"} 3\n") !=
      std::string::npos);
  CHECK(server.stop() == 0);
}
TEST_CASE("every bad request gets its status and the server stays up") {
  std::vector<std::string> options = emulated;
  options.insert(options.end(),
                 {"--body-limit", "4096", "--header-timeout-s", "0.3", "--read-timeout-s", "0.3"});
  child server{options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  {
    connection c{server.port()};
    CHECK(c.ask("GET", "/nothing").first == 404);
    CHECK(c.ask("GET", "/v2/models/x").first == 404);
    CHECK(c.ask("GET", "/v2/models/ResNet50/versions/2").first == 404);
    CHECK(c.ask("GET", "/v2/models/ResNet50/x").first == 404);
    CHECK(c.ask("DELETE", "/v2").first == 405);
    CHECK(c.ask("GET", "/v2/models/ResNet50/infer").first == 405);
    CHECK(c.head.find("Allow: POST") != std::string::npos);
    CHECK(c.ask("POST", "/v2/models/ResNet50/infer", "{").first == 400);
    CHECK(c.ask("POST", "/v2/models/ResNet50/infer", infer_body(65)).first == 400);
    // A deadline that even a batch of one cannot meet.
    CHECK(c.ask("POST", "/v2/models/ResNet50/infer",
                infer_body(1, R"("parameters":{"timeout":1000},)"))
              .first == 504);
  }
  {
    connection c{server.port()};
    CHECK(c.ask("POST", "/v2/models/ResNet50/infer", std::string(5000, ' ')).first == 413);
    CHECK(c.is_closed_by_server());
  }
  {
    connection c{server.port()};
    c.send("GET /v2 HTTP/1.1\r\nX: " + std::string(40000, 'x') + "\r\n\r\n");
    CHECK(c.answer().first == 431);
  }
  {
    connection c{server.port()};
    c.send("\x01\x02 nonsense\r\n\r\n");
    CHECK(c.answer().first == 400);
  }
  {
    connection c{server.port()};  // A slow client: the head never ends.
    c.send("GET /v2 HTTP/1.1\r\nHost:");
    CHECK(c.answer().first == 408);
    CHECK(c.is_closed_by_server());
  }
  {
    connection c{server.port()};  // Nor does the body.
    c.send("POST /v2/models/ResNet50/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
    CHECK(c.answer().first == 408);
  }
  {
    connection c{server.port()};  // Nothing was asked: nothing is answered.
    CHECK(c.is_closed_by_server());
  }
  const std::pair<const char*, int> odd[] = {
      {"GET /v2 HTTP/1.1\r\n\r\n", 400},  // No Host.
      {"GET http://example/v2 HTTP/1.1\r\nHost: example\r\n\r\n", 200},
      {"POST /v2/models/ResNet50/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"
       "GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n",
       501},
      {"POST /v2 HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\n{", 415},
      {"POST /v2 HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 1\r\n\r\n{", 417}};
  for (const auto& [bytes, status] : odd) {
    CAPTURE(bytes);
    connection c{server.port()};
    c.send(bytes);
    CHECK(c.answer().first == status);
    if (status != 200) CHECK(c.is_closed_by_server());
  }
  {
    connection c{server.port()};
    c.send("GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(c.answer().second == R"({"error":"/\ufffd is unknown"})");
  }
  {
    connection c{server.port()};
    c.send("POST /v2/models/ResNet50/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  }  // A client that vanishes in the middle of its body.
  {
    connection c{server.port()};  // And one that vanishes while its request waits.
    const std::string body = infer_body(1);
    c.send("POST /v2/models/ResNet50/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  connection c{server.port()};
  const std::string body = infer_body(1);
  const std::string two = "POST /v2/models/ResNet50/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body;
  c.send(two + two);  // Pipelined.
  CHECK(c.answer().first == 200);
  CHECK(c.answer().first == 200);
  CHECK(server.stop() == 0);
}
TEST_CASE("one connection too many is told so and closed") {
  std::vector<std::string> options = emulated;
  options.insert(options.end(), {"--max-connections", "1"});
  child server{options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection first{server.port()};
  CHECK(first.ask("GET", "/v2/health/live").first == 200);
  connection second{server.port()};
  CHECK(second.answer().first == 503);
  CHECK(second.is_closed_by_server());
  CHECK(first.ask("GET", "/v2/health/live").first == 200);
}
TEST_CASE("a request that never arrives does not hold up the exit") {
  std::vector<std::string> options = emulated;
  options.insert(options.end(), {"--header-timeout-s", "3600", "--drain-timeout-s", "3600"});
  child server{options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(c.ask("GET", "/v2/health/live").first == 200);
  c.send("GET /v2 HT");
  CHECK(server.stop() == 0);
}
load_result load(const child& server, double rate, double seconds) {
  load_options o;
  o.port = std::to_string(server.port());
  o.rate = rate;
  o.duration_s = seconds;
  o.input = [](const model_meta& m, std::uint64_t) {
    return std::vector<std::byte>(m.inputs.front().bytes());
  };
  return run_load(o);
}
TEST_CASE("under twice its load every request is answered exactly once") {
  child server{{"--executor", "emulated", "--devices", "1", "--models", "BERT"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  // BERT on an A100: about 130 requests/s.
  const load_result r = load(server, 270, 2);
  const load_tally& t = r.all;
  CHECK(t.sent > 450);
  CHECK(t.good + t.late + t.refused + t.timed_out == t.sent);
  CHECK(t.failed == 0);
  CHECK(t.connection == 0);
  CHECK(t.timed_out + t.refused > 0);
  CHECK(t.good > 0);
  CHECK(server.stop() == 0);
}
TEST_CASE("--max-batch bounds the batches of emulated devices") {
  child server{
      {"--executor", "emulated", "--devices", "1", "--models", "BERT", "--max-batch", "4"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  load_result r = load(server, 400, 1);
  CHECK(r.batches_up_to[UINT32_MAX] > 0);
  CHECK(r.batches_up_to[4] == r.batches_up_to[UINT32_MAX]);
  CHECK(server.stop() == 0);
}
struct temporary_file : test::scratch_file {
  explicit temporary_file(const std::string& text) : scratch_file{"options.json", text} {}
};

TEST_CASE("models run as pipelines, cut by hand or by the slicer, give the answers of whole ones") {
  const temporary_file cut{R"({"lenet": {"stages": [2, 1], "policies": ["operator", "load"]}})"};
  std::string data;
  for (int i = 0; i < 784; ++i) data += (i == 0 ? "" : ",") + std::to_string(i % 7);
  std::vector<std::string> outputs;
  const temporary_file alone_file{
      R"({"lenet": {"stages": 3, "entry": "idle", "policies": ["halving"]}})"};
  for (const std::string& how : {std::string{}, std::string{"auto"}, cut.path, alone_file.path}) {
    CAPTURE(how);
    std::vector<std::string> options{"--executor", "host",       "--models",    "lenet",
                                     "--devices",  "1",          "--policy",    "eager",
                                     "--slo-ms",   "lenet=5000", "--max-batch", "4"};
    if (!how.empty()) options.insert(options.end(), {"--pipeline", how});
    if (how == "auto") options.insert(options.end(), {"--pipeline-entries", "3"});
    child server{options};
    REQUIRE_MESSAGE(server.port() != 0, server.first_line);
    CHECK((server.first_line.find("pipelines: lenet ") != std::string::npos) == !how.empty());
    if (how == cut.path) CHECK(server.first_line.find("lenet 2+1") != std::string::npos);
    if (how == alone_file.path) CHECK(server.first_line.find("lenet 1+1+1") != std::string::npos);
    if (how == "auto") {
      const std::string notes = server.read_line();
      CHECK(notes.starts_with("lenet: trial at "));
      CHECK(notes.find(": 1 stage ") != std::string::npos);
      CHECK(notes.find(", 3 stages ") != std::string::npos);
      CHECK(notes.find(" (chosen)") != std::string::npos);
    }
    connection c{server.port()};
    const auto meta = c.ask("GET", "/v2/models/lenet");
    const std::size_t name = meta.second.find("\"inputs\":[{\"name\":\"") + 19;
    const std::string input = meta.second.substr(name, meta.second.find('"', name) - name);
    const std::size_t shape = meta.second.find("\"shape\":[", name) + 9;
    std::string dims = meta.second.substr(shape, meta.second.find(']', shape) - shape + 1);
    dims.replace(0, dims.find(',') == std::string::npos ? 0 : dims.find(','), "[1");
    const auto answer =
        c.ask("POST", "/v2/models/lenet/infer",
              R"({"inputs":[{"name":")" + input + R"(","datatype":"FP32","shape":)" + dims +
                  R"(,"data":[)" + data + "]}]}");
    REQUIRE_MESSAGE(answer.first == 200, answer.second);
    outputs.push_back(answer.second.substr(answer.second.find("\"outputs\"")));
    load_options o;
    o.port = std::to_string(server.port());
    o.rate = 100;
    o.duration_s = 1;
    o.input = [](const model_meta& m, std::uint64_t) {
      return std::vector<std::byte>(m.inputs.front().bytes());
    };
    const load_result r = run_load(o);
    CHECK(r.all.sent > 50);
    CHECK(r.all.good + r.all.late == r.all.sent);
    const std::string counts = c.ask("GET", "/metrics").second;
    const std::string rows = "\ncohort_pipeline_rows_total{event=\"new\",model=\"lenet\"} ";
    const std::size_t at = counts.find(rows);
    CHECK((at != std::string::npos) == !how.empty());
    if (at != std::string::npos) CHECK(std::stod(counts.substr(at + rows.size())) >= 1);
    const std::string busy =
        "\ncohort_device_busy_seconds_total{device=\"";  // However many entries.
    const std::size_t device = counts.find(busy);
    REQUIRE(device != std::string::npos);
    CHECK(counts[device + busy.size()] == '0');
    CHECK(counts.find(busy, device + 1) == std::string::npos);
    CHECK(server.stop() == 0);
  }
  CHECK(outputs[0] == outputs[1]);
  CHECK(outputs[0] == outputs[2]);
  CHECK(outputs[0] == outputs[3]);
}
/// The number behind a name in the head of an answer.
std::size_t number_in(const std::string& head, const std::string& field) {
  const std::size_t at = head.find(field + ": ");
  return at == std::string::npos ? 0 : std::stoul(head.substr(at + field.size() + 2));
}
std::string header_length(std::size_t n) {
  return "inference-HEADER-content-length: " + std::to_string(n) + "\r\n";  // In any case.
}

TEST_CASE("a tensor as binary data has the answer that it has as JSON, both ways") {
  child server{{"--executor", "host", "--models", "lenet", "--devices", "1", "--policy", "eager",
                "--slo-ms", "lenet=20000", "--max-batch", "4"}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const models::model_interface info = models::info_of("lenet");
  const std::vector<std::byte> row = models::sample_input(info, 3);
  std::vector<float> image(784);
  std::memcpy(image.data(), row.data(), row.size());
  std::string data;
  for (const float x : image) {
    char text[32];
    std::snprintf(text, sizeof(text), "%s%.9g", data.empty() ? "" : ",", static_cast<double>(x));
    data += text;
  }
  const std::string path = "/v2/models/lenet/infer";
  const std::string begin = R"("inputs":[{"name":"image","datatype":"FP32","shape":[1,28,28,1],)";
  const std::string all_binary = R"({"parameters":{"binary_data_output":true},)";
  const std::string as_binary = begin + R"("parameters":{"binary_data_size":3136}}]})";
  const std::string bytes{reinterpret_cast<const char*>(row.data()), row.size()};
  connection c{server.port()};
  const auto json = c.ask("POST", path, "{" + begin + "\"data\":[" + data + "]}]}");
  REQUIRE_MESSAGE(json.first == 200, json.second);
  CHECK(c.head.find("Content-Type: application/json\r\n") != std::string::npos);
  CHECK(number_in(c.head, json_length_field) == 0);
  const auto half =
      c.ask("POST", path, "{" + as_binary + bytes, header_length(as_binary.size() + 1));
  CHECK(half == json);
  const std::string head = all_binary + as_binary;
  const auto binary = c.ask("POST", path, head + bytes, header_length(head.size()));
  REQUIRE_MESSAGE(binary.first == 200, binary.second);
  CHECK(c.head.find("Content-Type: application/octet-stream\r\n") != std::string::npos);
  const std::size_t length = number_in(c.head, json_length_field);
  REQUIRE(binary.second.size() == length + 40);
  CHECK(binary.second.find("\"parameters\":{\"binary_data_size\":40}") < length);
  const std::size_t values = json.second.find("\"data\":[") + 8;
  const char* next = json.second.c_str() + values;
  for (std::size_t i = 0; i < 10; ++i) {
    float logit = 0;
    std::memcpy(&logit, binary.second.data() + length + 4 * i, 4);
    char* end = nullptr;
    CHECK(std::strtof(next, &end) == logit);
    next = end + 1;
  }
  CHECK(c.ask("GET", "/v2/models/lenet/stats")
            .second.find("\"inference_count\":3,\"execution_count\":3,") != std::string::npos);
  for (int i = 0; i < 20; ++i) {  // Some vanish while their rows are still to be copied.
    connection gone{server.port()};
    gone.send("POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header_length(head.size()) +
              "Content-Length: " + std::to_string(head.size() + bytes.size()) + "\r\n\r\n" + head +
              bytes);
  }
  CHECK(c.ask("POST", path, head + bytes.substr(1), header_length(head.size())).first == 400);
  CHECK(c.ask("POST", path, head + bytes, header_length(0)).first == 400);
  const auto twice =
      c.ask("POST", path, head + bytes, header_length(head.size()) + header_length(head.size()));
  CHECK(twice.first == 400);
  CHECK(twice.second == R"({"error":"expected one Inference-Header-Content-Length field"})");

  load_options o;
  o.port = std::to_string(server.port());
  o.rate = 100;
  o.duration_s = 0.5;
  o.verify = 20;
  o.binary = true;
  o.give_up_s = 300;
  o.input = [&](const model_meta& m, std::uint64_t variant) {
    CHECK(m.inputs == info.inputs);
    CHECK(m.outputs == info.outputs);
    return models::sample_input(info, variant);
  };
  o.check = [&](const model_meta&, std::span<const std::byte> input,
                std::span<const float> output) {
    const std::vector<double> expected = models::reference_output("lenet", 1, input);
    if (expected.size() != output.size()) return false;
    double largest = 0;
    for (const double x : expected) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double off = std::abs(expected[i] - static_cast<double>(output[i]));
      if (!(off <= models::tolerance * largest)) return false;
    }
    return true;
  };
  const load_result r = run_load(o);
  CHECK(r.all.good + r.all.late == r.all.sent);
  CHECK(r.verified >= 10);
  CHECK(r.wrong == 0);
  CHECK(server.stop() == 0);
}
TEST_CASE("mutated requests are answered, or refused as bad, and the server stays up") {
  child server{emulated};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const std::string json =
      R"({"id":"a","parameters":{"binary_data_output":true,"timeout":4000000},"inputs":[{"name":"input",)"
      R"("datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":8}}],"outputs":[]})";
  const std::string good = json + std::string("\0\0\x80\x3f\0\0\0\x40", 8);
  constexpr std::uint64_t seed = 17;
  CAPTURE(seed);
  test::random_source random{seed};
  connection c{server.port()};
  int accepted = 0;
  constexpr int rounds = 1500;
  for (int i = 0; i < rounds; ++i) {
    std::string body = good;
    std::size_t length = json.size();
    for (int n = random.below(3); n >= 0; --n) {
      const std::size_t at = random.below(body.size());
      switch (random.below(6)) {
        case 0:
          body[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          body.erase(at, 1 + random.below(std::size_t{12}));
          break;
        case 2:
          body.insert(at, body.substr(random.below(body.size()), random.below(std::size_t{40})));
          break;
        case 3:
          length = random.below(body.size() + 4);
          break;
        case 4:
          body[at] = static_cast<char>('0' + random.below(10));
          break;
        default:
          body.insert(at, 1, "{}[],:\"\\ -e"[random.below(11)]);
      }
    }
    CAPTURE(i);
    CAPTURE(body);
    const auto [status, answer] =
        c.ask("POST", "/v2/models/ResNet50/infer", body, header_length(length));
    REQUIRE((status == 200 || status == 400 || status == 504));
    if (status == 200) ++accepted;
  }
  CHECK(accepted > 0);
  CHECK(accepted < rounds);
  CHECK(c.ask("POST", "/v2/models/ResNet50/infer", good, header_length(json.size())).first == 200);
  CHECK(server.stop() == 0);
}
TEST_CASE("sequences padded to less than the model takes have the model's answers") {
  const temporary_file cut{
      R"({"bert_mini": {"sizes": [8, 24, 64], "policies": ["input", "operator", "load"]}})"};
  child server{{"--executor", "host", "--models", "bert_mini", "--devices", "1", "--slo-ms",
                "bert_mini=20000", "--max-batch", "4", "--pipeline", cut.path}};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  const models::model_interface info = models::info_of("bert_mini");
  load_options o;
  o.port = std::to_string(server.port());
  o.rate = 100;
  o.duration_s = 0.5;
  o.verify = 12;
  o.give_up_s = 300;  // Checking answers takes long under sanitizers, and holds up reading them.
  o.input = [&](const model_meta&, std::uint64_t variant) {
    return models::sample_input(info, variant);
  };
  std::set<std::uint32_t> sizes;
  o.check = [&](const model_meta&, std::span<const std::byte> input,
                std::span<const float> output) {
    sizes.insert(models::sequence_length(input) / 8);
    const std::vector<double> expected = models::reference_output("bert_mini", 1, input);
    double off = 0;
    double largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      off = std::max(off, std::abs(expected[i] - static_cast<double>(output[i])));
      largest = std::max(largest, std::abs(expected[i]));
    }
    return off <= models::tolerance * largest;
  };
  const load_result r = run_load(o);
  CHECK(r.all.good + r.all.late == r.all.sent);
  CHECK(r.verified >= 6);
  CHECK(r.wrong == 0);
  CHECK(sizes.size() > 2);  // Short ones and long ones were among them.
  CHECK(server.stop() == 0);
}
TEST_CASE("emulated devices have the faults of --reality") {
  const temporary_file failing{R"({"faults": [{"at_s": 0, "device": 0, "kind": "fail"},
                                         {"at_s": 0, "device": 1, "kind": "fail"}]})"};
  std::vector<std::string> options = emulated;
  options.insert(options.end(), {"--reality", failing.path});
  child server{options};
  REQUIRE_MESSAGE(server.port() != 0, server.first_line);
  connection c{server.port()};
  CHECK(c.ask("POST", "/v2/models/ResNet50/infer", infer_body(1)).first == 500);
  CHECK(server.stop() == 0);
}
TEST_CASE("a reality that no emulated server can have is refused in one line" *
          doctest::skip(test::is_thread_sanitized)) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"load": [{"at_s": 0, "part": 1}]})", "--reality: load: "},
      {R"({"timers": {"late_ms": 1}})", "--reality: timers: "},
      {R"({"faults": [{"at_s": 0, "device": 2, "kind": "fail"}]})",
       "$.faults[0].device: bad value"},
      {R"({"noise": 1})", "$.noise"},
      {"{", "--reality: scratch."}};
  for (const auto& [text, message] : bad) {
    const temporary_file f{text};
    std::vector<std::string> options = emulated;
    options.insert(options.end(), {"--reality", f.path});
    child c{options};
    CHECK(c.wait() == 2);
    CAPTURE(c.first_line);
    CHECK(c.first_line.starts_with("inference_server: "));
    CHECK(test::gist(c.first_line).find(message) != std::string::npos);
  }
}
TEST_CASE("stages that are not the model's are refused in one line" *
          doctest::skip(test::is_thread_sanitized)) {
  const std::pair<const char*, const char*> bad[] = {
      {R"({"lenet": {"stages": [2, 2]}})", "lenet: stages: bad value"},
      {R"({"lenet": {"stages": [0, 3]}})", "stages[0]"},
      {R"({"lenet": {"stages": []}})", "$.lenet.stages: bad value"},
      {R"({"lenet": {"stages": 0}})", "stages: bad value"},
      {R"({"lenet": {"stages": 4}})", "lenet: stages: bad value"},
      {R"({"lenet": {"stages": 1e400}})", "$.lenet.stages: bad value"},
      {R"({"lenet": {"stages": "best"}})", "$.lenet.stages: bad value"},
      {R"({"lenet": {"policies": []}})", "$.lenet.policies: bad value"},
      {R"({"lenet": {"policies": ["load", "input"]}})", "policies[1]: bad value"},
      {R"({"lenet": {"buffer_sets": 0}})", "buffer_sets"},
      {R"({"lenet": {"entry": "now"}})", "$.lenet.entry: bad value"},
      {R"({"lenet": {"policies": ["load", "always-stretch"]}})", "$.lenet.policies[1]: bad value"},
      {R"({"lenet": {"sizes": [8]}})", "lenet: sizes: bad value"},
      {R"({"lenet": {"sizes": [8, 8]}})", "sizes[1]"},
      {R"({"lenet": {"sizes": []}})", "sizes"},
      {R"({"lenet": {"x": 1}})", "x"},
      {R"({"bert_mini": {"sizes": [8]}})", "sizes: bad value"},
      {R"({"bert_mini": {"sizes": [64, 65]}})", "sizes: bad value"},
      {R"({"alexnet": {}})", "model 'alexnet' is not served"},
      {"{", "scratch."}};
  for (const auto& [text, message] : bad) {
    const temporary_file f{text};
    child c{{"--executor", "host", "--models", "lenet,bert_mini", "--max-batch", "1", "--pipeline",
             f.path}};
    CHECK(c.wait() == 2);
    CAPTURE(c.first_line);
    CHECK(c.first_line.starts_with("inference_server: --pipeline: "));
    CHECK(test::gist(c.first_line).find(message) != std::string::npos);
  }
}
TEST_CASE("options of devices' health that cannot be are refused in one line, status 2" *
          doctest::skip(test::is_thread_sanitized)) {
  const auto refused = [](const std::string& option, const std::string& value) {
    CAPTURE(option);
    CAPTURE(value);
    child c{{option, value}};
    CHECK(c.wait() == 2);
    CHECK(c.told_before.empty());
    CHECK(c.read_rest().empty());
    return test::gist(c.first_line);
  };
  const auto is_out = [](const std::string& option) {
    return "inference_server: " + option + ": bad value\n";
  };
  for (const std::string value :
       {"", "3", "3/", "/10", "0/10", "11/10", "3/65", "-3/10", "3/10/2", "3 / 10", "3/10x",
        "nan/10", "0x3/10", "3.5/10", "3/4294967297"}) {
    CHECK(refused("--failures", value) == is_out("--failures"));
  }
  for (const std::string value : {"-1", "256", "nan", "x", "1e9", "4294967296"}) {
    CHECK(refused("--retries", value) == is_out("--retries"));
  }
  for (const std::string option : {"--suspect-factor", "--hang-factor"}) {
    for (const std::string value : {"0.99", "0", "-3", "1001", "inf", "nan", "x", "3x"}) {
      CHECK(refused(option, value) == is_out(option));
    }
  }
  for (const std::string value : {"0", "-250", "3.7e6", "inf", "nan", "x", "250ms"}) {
    CHECK(refused("--suspect-floor-ms", value) == is_out("--suspect-floor-ms"));
  }
  CHECK(refused("--retries", "2.5") == is_out("--retries"));  // A whole number is asked for.
}

TEST_CASE("bad options end the server with status 2 and one line" *
          doctest::skip(test::is_thread_sanitized)) {
  child policy{{"--policy", "best"}};
  CHECK(policy.wait() == 2);
  CHECK(test::gist(policy.first_line) == "inference_server: --policy: bad value\n");
  const std::pair<std::vector<std::string>, const char*> bad[] = {
      {{"--read-timeout-s", "nan"}, "--read-timeout-s: bad value"},
      {{"--port", "99999"}, "--port: bad value"},
      {{"--bogus"}, "\"--bogus\": unknown option or argument: inference_server --help lists them"},
      {{"--executor", "foo"}, "--executor: bad value"},
      {{"--host", "somewhere"}, "--host: bad value"},
      {{"--pipeline", "no/such.json"}, "--pipeline: no/such.json: cannot be read"},
      {{"--pipeline", "."}, "--pipeline: .: cannot be read: Is a directory"},
      {{"--pipeline-entries", "3"}, "--pipeline-entries: only with --pipeline"},
      {{"--zoo", "a100"}, "--zoo: only with --executor emulated"},
      {{"--model-control-mode", "poll"}, "--model-control-mode: only with --repository"},
      {{"--repository", ".", "--repository-poll-s", "1"},
       "--repository-poll-s: only with --model-control-mode poll"},
      {{"--repository", ".", "--model-control-mode", "none", "--load-model", "a"},
       "--load-model: only with --model-control-mode explicit"},
      {{"--repository", ".", "--model-control-mode", "none", "--control-token-file", "t"},
       "--control-token-file: only with --model-control-mode explicit"},
      {{"--repository", ".", "--model-control-mode", "poll", "--control", "on"},
       "--control: bad value"},
      {{"--repository", ".", "--model-control-mode", "poll", "--pipeline", "auto"},
       "--model-control-mode: not with --plan or --pipeline"},
      {{"--http-port", "8000"}, "\"--http-port\": unknown option or argument"},
      {{"--triton-compatible"}, "--model-repository: missing"},
      {{"--triton-compatible=true", "--repository", "."}, "--triton-compatible: bad value"},
      {{"--triton-compatible", "--triton-compatible=false"}, "--triton-compatible: bad value"},
      {{"--triton-compatible", "--model-repository", ".", "--pipeline", "auto",
        "--exit-on-error=false"},
       "--pipeline: only with --exit-on-error and --strict-readiness false"},
      {{"--triton-compatible", "--model-repository", ".", "--metrics-port", "99999"},
       "--metrics-port: bad value"},
      {{"--triton-compatible", "--model-repository", ".", "--bogus"},
       "\"--bogus\": unknown option or argument"},
      {{"--triton-compatible", "--model-repository", ".", "--allow-http", "false"},
       "--allow-http: bad value"},
      {{"--response-cache-mib", "1"}, "--response-cache-mib: only with --repository"},
      {{"--repository", ".", "--response-cache-mib", "-1"}, "--response-cache-mib: bad value"},
      {{"--repository", ".", "--cache-config", "local,size=1"},
       "\"--cache-config\": unknown option or argument"},
      {{"--triton-compatible", "--model-repository", ".", "--cache-config", "redis,host=a"},
       "--cache-config: bad value"},
      {{"--triton-compatible", "--model-repository", ".", "--cache-config=local,size=1e14"},
       "--cache-config: bad value"},
      {{"--triton-compatible", "--model-repository", ".", "--cache-config=local,size=1",
        "--response-cache-byte-size=1"},
       "--response-cache-byte-size: not with --cache-config"},
      {{"--reality", "r.json"}, "--reality: only with --executor emulated"},
      {{"--executor", "emulated", "--reality", "no/such.json"},
       "--reality: no/such.json: cannot be read"},
      {{"--executor", "emulated", "--slo-ms", "BERT=0.001"}, "--slo-ms: bad value"}};
  for (const auto& [options, message] : bad) {
    child c{options};
    CHECK(c.wait() == 2);
    CHECK(test::gist(c.first_line).starts_with(std::string{"inference_server: "} + message));
  }
  const std::pair<std::vector<std::string>, std::string> contradict[] = {
      {{"--models", "lenet,lenet"}, "--models: lenet ... repeated"},
      {{"--slo-ms", "lenet=5", "--slo-ms", "lenet=6"}, "--slo-ms: lenet ... repeated"},
      {{"--executor", "emulated", "--pipeline", "auto"}, "--pipeline: emulated ... no stages"}};
  for (const auto& [options, message] : contradict) {
    child c{options};
    CHECK(c.wait() == 2);
    CHECK(test::gist(c.first_line) == "inference_server: " + message + "\n");
  }
  child model{{"--models", "alexnet"}};
  CHECK(model.wait() == 2);
  child first{emulated};
  child second{{"--port", std::to_string(first.port()), "--executor", "emulated"}};
  CHECK(second.wait() == 2);
  CHECK(second.first_line.find("cannot listen on 127.0.0.1") != std::string::npos);
}
}  // namespace
}  // namespace cohort::serve::server_test
