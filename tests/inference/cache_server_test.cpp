// SPDX-License-Identifier: Apache-2.0
// Answers that are kept for equal requests, as clients see them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/onnx_models.hpp>
#include "inference/onnx_repository.hpp"

namespace cohort::inference::cache_server_test {
namespace {

using repository = test::onnx_repository;

const std::string cached = "response_cache { enable: true }\n" + test::parameter("slo_ms", "60000");
/// Its requests have rows, and share batches.
const std::string in_rows = "max_batch_size: 64\ndynamic_batching { }\n" + cached;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// An input of the model `plus`: so many rows.
std::string rows(int n, const std::string& value = "1") {
  std::string data = value;
  for (int i = 1; i < n; ++i) data += "," + value;
  return R"({"name":"x","datatype":"FP32","shape":[)" + std::to_string(n) + R"(,1],"data":[)" +
         data + "]}";
}
std::string ask(test::connection& c, const std::string& model, const std::string& inputs,
                const std::string& more = "", int expected = 200) {
  const auto [status, body] =
      c.ask("POST", "/v2/models/" + model + "/infer", R"({"inputs":[)" + inputs + "]" + more + "}");
  CAPTURE(body);
  CHECK(status == expected);
  return body;
}
/// The first value of an answer in JSON.
std::string first(const std::string& body) {
  const std::size_t at = body.find("\"data\":[") + 8;
  return body.substr(at, body.find_first_of(",]", at) - at);
}
/// Of a model's statistics: rows and batches that ran, successes, hits, misses.
std::string counts(test::connection& c, const std::string& model) {
  const std::string all = c.ask("GET", "/v2/models/" + model + "/stats").second;
  std::string out;
  for (const char* name :
       {"\"inference_count\":", "\"execution_count\":", "\"success\":{\"count\":",
        "\"cache_hit\":{\"count\":", "\"cache_miss\":{\"count\":"}) {
    const std::size_t at = all.find(name);
    REQUIRE(at != all.npos);
    out += std::to_string(std::stoi(all.substr(at + std::strlen(name)))) + " ";
  }
  return out;
}
void load(test::connection& c, const std::string& model) {
  CHECK(c.ask("POST", "/v2/repository/models/" + model + "/load", "", test::shown_token).first ==
        200);
}

TEST_CASE("an equal request gets the same bytes, in any form, and nothing runs for it") {
  const repository r;
  r.add(test::plus(2), "rows", in_rows);
  r.add(test::plus(2), "open", cached);
  test::child_server s{INFERENCE_SERVER,
                       r.options({"--response-cache-mib", "64", "--triton-metrics"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  for (const std::string model : {"rows", "open"}) {
    CAPTURE(model);
    const std::string one = ask(c, model, rows(1));
    CHECK(first(one) == "3");
    CHECK(counts(c, model) == "1 1 1 0 1 ");
    CHECK(ask(c, model, rows(1)) == one);
    CHECK(counts(c, model) == "1 1 2 1 1 ");
    // The largest two of each row, and binary data.
    CHECK(first(ask(c, model, rows(1),
                    R"(,"outputs":[{"name":"y","parameters":{"classification":2}}])")) ==
          "\"3.000000:0\"");
    const std::string binary =
        ask(c, model, rows(1), R"(,"parameters":{"binary_data_output":true})");
    REQUIRE(binary.size() > 4096 * sizeof(float));
    std::vector<float> values(4096);
    const std::size_t bytes = values.size() * sizeof(float);
    std::memcpy(values.data(), binary.data() + binary.size() - bytes, bytes);
    CHECK(values == std::vector<float>(4096, 3.0F));
    CHECK(has(ask(c, model, rows(1), R"(,"id":"mine")"), R"("id":"mine")"));
    CHECK(counts(c, model) == "1 1 5 4 1 ");
    // Another value, and another shape; an answer in pieces.
    CHECK(first(ask(c, model, rows(1, "2"))) == "4");
    const std::string eight = ask(c, model, rows(8));
    CHECK(has(eight, "\"shape\":[8,4096]"));
    CHECK(ask(c, model, rows(8)) == eight);
    CHECK(counts(c, model).ends_with(" 8 5 3 "));
  }
  const std::string page = c.ask("GET", "/metrics").second;
  CHECK(has(page, "cohort_response_cache_lookups_total{model=\"rows\",result=\"hit\"} 5\n"));
  CHECK(has(page, "cohort_response_cache_lookups_total{model=\"rows\",result=\"miss\"} 3\n"));
  CHECK(has(page, "nv_cache_num_hits_per_model{model=\"open\",version=\"1\"} 5\n"));
  CHECK(has(page, "nv_cache_num_misses_per_model{model=\"open\",version=\"1\"} 3\n"));
  CHECK(has(page, "cohort_requests_total{model=\"rows\",outcome=\"completed\"} 22\n"));
  CHECK(
      has(c.ask("GET", "/v2/models/rows/config").second, R"("response_cache": {"enable": true})"));
  CHECK(s.stop() == 0);
}

TEST_CASE("the same bytes in another shape, and other outputs, are another request") {
  const repository r;
  r.add(test::pooled(), "pooled", cached);
  r.add(test::two_by_two(), "two", in_rows);
  test::child_server s{INFERENCE_SERVER, r.options({"--response-cache-mib", "1"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto image = [](const std::string& shape) {
    return R"({"name":"x","datatype":"FP32","shape":)" + shape +
           R"(,"data":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]})";
  };
  for (int i = 0; i < 2; ++i) {
    CHECK(has(ask(c, "pooled", image("[1,2,2,4]")), R"("shape":[1,2,1,2],"data":[5,7,13,15])"));
    CHECK(has(ask(c, "pooled", image("[1,2,4,2]")), R"("shape":[1,2,2,1],"data":[3,7,11,15])"));
  }
  CHECK(counts(c, "pooled") == "2 2 4 2 2 ");
  const std::string inputs = R"({"name":"b","datatype":"INT32","shape":[1,5],"data":[1,-1,1,0,1]},)"
                             R"({"name":"a","datatype":"FP32","shape":[1,3],"data":[1,2,3]})";
  const std::string sum = R"("data":[3,4,5])";
  const std::string positive = R"("data":[true,false,true,false,true])";
  for (int i = 0; i < 2; ++i) {
    const std::string some = ask(c, "two", inputs, R"(,"outputs":[{"name":"positive"}])");
    CHECK(has(some, positive));
    CHECK_FALSE(has(some, "sum"));
    const std::string all = ask(c, "two", inputs);
    CHECK(has(all, sum));
    CHECK(has(all, positive));
  }
  CHECK(has(ask(c, "two", inputs, R"(,"outputs":[{"name":"positive"},{"name":"sum"}])"), sum));
  CHECK(counts(c, "two") == "2 2 5 3 2 ");
  CHECK(s.stop() == 0);
}

TEST_CASE("neither another version nor a load before gives an answer") {
  const repository r;
  r.add(test::plus(2), "sum", in_rows + "version_policy { all { } }\n");
  r.add(test::plus(5), "sum", "", 2);
  test::child_server s{INFERENCE_SERVER, r.options({"--response-cache-mib", "1"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  for (int i = 0; i < 2; ++i) {
    CHECK(first(ask(c, "sum/versions/1", rows(1))) == "3");
    CHECK(first(ask(c, "sum", rows(1))) == "6");
  }
  CHECK(counts(c, "sum/versions/2") == "1 1 2 1 1 ");
  const std::string both = c.ask("GET", "/v2/models/sum/stats").second;
  CHECK(has(both, "\"version\":\"1\""));
  CHECK(has(both, "\"version\":\"2\""));
  r.add(test::plus(7), "sum", "", 2);
  load(c, "sum");
  CHECK(first(ask(c, "sum", rows(1))) == "8");
  CHECK(first(ask(c, "sum/versions/1", rows(1))) == "3");
  const std::string before = counts(c, "sum/versions/2");
  load(c, "sum");  // The same files.
  CHECK(first(ask(c, "sum", rows(1))) == "8");
  CHECK(before.substr(0, 2) != counts(c, "sum/versions/2").substr(0, 2));
  CHECK(first(ask(c, "sum", rows(1))) == "8");
  // The latest version goes, comes back, and goes again.
  const std::string config = r.folder + "/sum/config.pbtxt";
  for (const char* version : {"1", "2", "1"}) {
    test::spill(config, in_rows + "version_policy { specific { versions: " + version + " } }\n");
    load(c, "sum");
    for (int i = 0; i < 2; ++i) {
      CHECK(first(ask(c, "sum", rows(1))) == (std::string{version} == "1" ? "3" : "8"));
    }
  }
  CHECK(s.stop() == 0);
}

TEST_CASE("what cannot be computed is not kept") {
  const repository r;
  r.add(test::in_pairs(), "pairs", cached);
  test::child_server s{INFERENCE_SERVER, r.options({"--response-cache-mib", "1"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string odd = R"({"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]})";
  const std::string even = R"({"name":"x","datatype":"FP32","shape":[1,2],"data":[1,2]})";
  for (int i = 0; i < 2; ++i) {
    ask(c, "pairs", odd, "", 400);
    CHECK(has(ask(c, "pairs", even), "\"data\":[1,2]"));
  }
  CHECK(counts(c, "pairs") == "1 1 2 1 1 ");
  CHECK(has(c.ask("GET", "/v2/models/pairs/stats").second, R"("fail":{"count":2)"));
  CHECK(s.stop() == 0);
}

TEST_CASE("the cache keeps its bound, and off unless asked for") {
  const repository r;
  r.add(test::plus(2), "sum", cached);
  {
    test::child_server s{INFERENCE_SERVER, r.options({"--response-cache-mib", "1"})};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    test::connection c{s.port()};
    // Two answers of 512 KiB do not fit beside what they take more.
    for (const char* value : {"1", "2", "1", "1"}) ask(c, "sum", rows(32, value));
    CHECK(counts(c, "sum").ends_with(" 4 1 3 "));
    for (int i = 0; i < 2; ++i) ask(c, "sum", rows(64));  // Never.
    CHECK(counts(c, "sum").ends_with(" 6 1 5 "));
    // 8 bytes each: load, outputs, rows, size; two dimensions and their number; the input's length.
    // It has 32 numbers, and the output 32 times 4096.
    CHECK(has(c.ask("GET", "/metrics").second,
              "cohort_response_cache_bytes " +
                  std::to_string(8 * 8 + 32 * 4 + 256 + 128 + 32 * 4096 * 4) + "\n"));
    CHECK(s.stop() == 0);
  }
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before,
            "sum/config.pbtxt: response_cache.enable is ignored without --response-cache-mib\n"));
  test::connection c{s.port()};
  for (int i = 0; i < 2; ++i) CHECK(first(ask(c, "sum", rows(1))) == "3");
  CHECK(counts(c, "sum") == "2 2 2 0 0 ");
  CHECK(s.stop() == 0);
}

TEST_CASE("tritonserver's options say how large it is, and steps of ensembles use it") {
  const repository r;
  r.add(test::plus(2), "sum", in_rows);
  r.add(test::plus(2), "not", "max_batch_size: 64\n" + test::parameter("slo_ms", "60000"));
  std::filesystem::create_directories(r.folder + "/both/1");
  test::spill(r.folder + "/both/config.pbtxt",
              "platform: 'ensemble' max_batch_size: 8 response_cache { enable: true }\n"
              "input { name: 'x' data_type: TYPE_FP32 dims: [1] }\n"
              "output { name: 'y' data_type: TYPE_FP32 dims: [4096] }\n"
              "ensemble_scheduling { step { model_name: 'sum' input_map { key: 'x' value: 'x' } "
              "output_map { key: 'y' value: 'y' } } }\n");
  for (const char* option :
       {"--cache-config=local,size=100000", "--response-cache-byte-size=100000"}) {
    test::child_server s{
        INFERENCE_SERVER,
        {"--triton-compatible", "--model-repository", r.folder, "--http-address", "127.0.0.1",
         "--metrics-port", "0", "--cache", "off", "--devices", "2", option}};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    CHECK(has(s.told_before, "response_cache.enable is ignored of an ensemble"));
    test::connection c{s.port()};
    const std::string one = ask(c, "both", rows(2));
    CHECK(has(one, "\"shape\":[2,4096]"));
    CHECK(ask(c, "both", rows(2)) == one);
    CHECK(counts(c, "both").ends_with(" 2 0 0 "));
    CHECK(counts(c, "sum") == "2 1 2 1 1 ");
    for (int i = 0; i < 2; ++i) CHECK(first(ask(c, "not", rows(1))) == "3");
    CHECK(counts(c, "not") == "2 2 2 0 0 ");
    CHECK(s.stop() == 0);
  }
}

TEST_CASE("inputs in shared memory are looked up by what they are when the request is read") {
  const repository r;
  r.add(test::plus(2), "sum", in_rows);
  test::child_server s{INFERENCE_SERVER,
                       r.options({"--response-cache-mib", "1", "--shared-memory", "on"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string key = "/cohort_cache_test_" + std::to_string(getpid());
  const int fd = shm_open(key.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  REQUIRE(fd >= 0);
  CHECK(ftruncate(fd, 4096) == 0);
  CHECK(c.ask("POST", "/v2/systemsharedmemory/region/r/register",
              R"({"key":")" + key + R"(","offset":0,"byte_size":4096})")
            .first == 200);
  const std::string input =
      R"({"name":"x","datatype":"FP32","shape":[1,1],"parameters":{"shared_memory_region":"r",)"
      R"("shared_memory_byte_size":4}})";
  for (const float value : {1.0F, 7.0F, 1.0F}) {
    CHECK(pwrite(fd, &value, sizeof(value), 0) == sizeof(value));
    CHECK(first(ask(c, "sum", input)) == (value == 1.0F ? "3" : "9"));
  }
  CHECK(first(ask(c, "sum", rows(1, "7"))) == "9");
  CHECK(counts(c, "sum") == "2 2 4 2 2 ");
  shm_unlink(key.c_str());
  close(fd);
  CHECK(s.stop() == 0);
}

}  // namespace
}  // namespace cohort::inference::cache_server_test
