// SPDX-License-Identifier: Apache-2.0
// Models whose requests have shapes of their own, as clients see them.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/onnx_models.hpp>
#include <support/profile_folder.hpp>
#include <support/soon.hpp>
#include "inference/onnx_repository.hpp"

namespace cohort::inference::open_server_test {
namespace {

using repository = test::onnx_repository;

std::string input(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& data) {
  return R"({"name":")" + name + R"(","datatype":")" + type + R"(","shape":)" + shape +
         R"(,"data":)" + data + "}";
}
std::pair<int, std::string> infer(test::connection& c, const std::string& model,
                                  const std::string& inputs, const std::string& more = "") {
  return c.ask("POST", "/v2/models/" + model + "/infer",
               R"({"inputs":[)" + inputs + "]" + more + "}");
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// So many zeros.
std::string zeros(int n) {
  std::string all = "[0";
  for (int i = 1; i < n; ++i) all += ",0";
  return all + "]";
}

TEST_CASE("requests of any shape are computed, several at a time, without a configuration") {
  const repository r;
  r.add(test::pooled(), "pooled");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before,
            "model 'pooled': input 'x', dimension 3 is dynamic and is called 'width': each of its "
            "requests has shapes of its own, and runs alone\n"));
  test::connection c{s.port()};
  const std::string meta = c.ask("GET", "/v2/models/pooled").second;
  CHECK(has(meta, R"({"name":"x","datatype":"FP32","shape":[-1,2,-1,-1]})"));
  CHECK_FALSE(has(meta, "max_size"));
  const auto [status, body] = infer(
      c, "pooled", input("x", "FP32", "[1,2,2,4]", "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]"));
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(has(body, R"({"name":"y","datatype":"FP32","shape":[1,2,1,2],"data":[5,7,13,15]})"));
  std::vector<std::thread> clients;
  for (int k = 1; k <= 4; ++k) {
    clients.emplace_back([&, k] {
      test::connection mine{s.port()};
      for (int i = 1; i <= 10; ++i) {
        const std::string shape = std::to_string(2 * i) + "," + std::to_string(2 * k);
        const auto [done, answer] = infer(
            mine, "pooled", input("x", "FP32", "[1,2," + shape + "]", zeros(2 * 2 * i * 2 * k)));
        CHECK(done == 200);
        CHECK(has(answer, "\"shape\":[1,2," + std::to_string(i) + "," + std::to_string(k) + "]"));
      }
    });
  }
  for (std::thread& t : clients) t.join();
  CHECK(has(c.ask("GET", "/v2/models/pooled/stats").second, R"("inference_count":41)"));
  // Large enough for an answer in pieces.
  const int side = 1024;
  const auto [large, pieces] =
      infer(c, "pooled", input("x", "FP32", "[1,2,1024,1024]", zeros(2 * side * side)));
  CHECK(large == 200);
  CHECK(has(pieces, "\"shape\":[1,2,512,512]"));
  CHECK(s.stop() == 0);
}

/// What a row lacks to the sum of all rows that it runs with: 0 alone.
formats::onnx_model company() {
  test::onnx_builder b{"company"};
  const test::onnx_builder::declared shape{{.name = "n"}, {.name = "high"}, {.name = "wide"}};
  const std::string x = b.input("x", runtime::data_type::f32, shape);
  const std::string sum =
      b.node("ReduceSum", {x, b.integers({1}, {0})}, {{"keepdims", std::int64_t{1}}});
  b.node("Sub", {sum, x}, {}, "others");
  b.output("others", runtime::data_type::f32, shape);
  return b.done();
}

TEST_CASE("only with dynamic_batching do requests of the same shapes run in one batch") {
  const repository r;
  const std::string config =
      "max_batch_size: 8\ninput { name: 'x' data_type: TYPE_FP32 dims: [-1, -1] }\n";
  r.add(company(), "alone", config);
  // Whoever comes first waits for others.
  r.add(company(), "shared",
        config + "dynamic_batching { max_queue_delay_microseconds: 1000000 }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  for (const std::string name : {"alone", "shared"}) {
    CAPTURE(name);
    std::atomic<int> in_company{0};
    std::vector<std::thread> clients;
    for (int k = 0; k < 8; ++k) {
      clients.emplace_back([&] {
        test::connection mine{s.port()};
        for (int i = 0; i < 3; ++i) {
          const auto [done, answer] = infer(mine, name, input("x", "FP32", "[1,1,2]", "[1,1]"));
          CHECK(done == 200);
          if (!has(answer, R"("data":[0,0])")) ++in_company;
        }
      });
    }
    for (std::thread& t : clients) t.join();
    CHECK((in_company > 0) == (name == "shared"));
  }
  CHECK(s.stop() == 0);
}

TEST_CASE("requests of the same shapes share batches where the configuration batches them") {
  const repository r;
  r.add(
      test::pooled(), "pooled",
      "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 1000 }\n"
      "input { name: 'x' data_type: TYPE_FP32 dims: [2, -1, -1] }\n"
      "output { name: 'y' data_type: TYPE_FP32 dims: [2, -1, -1] label_filename: 'names.txt' }\n");
  test::spill(r.folder + "/pooled/names.txt", "cat\ndog\r\n\nfox");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "has shapes of its own, and runs with others of the same shapes\n"));
  std::vector<std::thread> clients;
  for (int k = 1; k <= 8; ++k) {
    clients.emplace_back([&, k] {
      test::connection mine{s.port()};
      const std::string size = k % 2 == 0 ? "[1,2,2,2]" : "[2,2,2,1]";
      const std::string last = std::to_string(k);
      for (int i = 0; i < 20; ++i) {
        // One row of two pairs of lines, or two rows, which cannot be pooled.
        const auto [done, answer] =
            infer(mine, "pooled", input("x", "FP32", size, "[0,0,0,0,0,0,0," + last + "]"));
        CHECK(done == (k % 2 == 0 ? 200 : 400));
        if (k % 2 == 0) CHECK(has(answer, R"("shape":[1,2,1,1],"data":[0,)" + last + "]"));
      }
    });
  }
  for (std::thread& t : clients) t.join();
  test::connection c{s.port()};
  CHECK(has(infer(c, "pooled", input("x", "FP32", "[1,2,2,4]", zeros(15).insert(1, "9,")),
                  R"(,"outputs":[{"name":"y","parameters":{"classification":4}}])")
                .second,
            R"("data":["9.000000:0:cat","0.000000:1:dog","0.000000:2:","0.000000:3:fox"])"));
  CHECK(s.stop() == 0);
}

TEST_CASE("labels that cannot be read are told by their field") {
  const repository r;
  r.add(test::mlp(), "mlp", "max_batch_size: 4\n");
  r.add(test::pooled(), "pooled",
        "output { name: 'y' dims: [-1, 2, -1, -1] label_filename: '../mlp/config.pbtxt' }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(
      has(s.told_before,
          "pooled/config.pbtxt: label_filename: \"../mlp/config.pbtxt\" is refused: it is a link"));
  CHECK(s.stop() == 0);
}

TEST_CASE("what an open model cannot compute is the client's fault, in the runtime's words") {
  const repository r;
  r.add(test::pooled(), "pooled");
  r.add(test::from_minus_ten(), "ids");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "how long it takes is learned from its requests"));
  test::connection c{s.port()};
  for (int i = 0; i < 8; ++i) {  // More than make a device or a model suspect.
    const auto [status, body] = infer(c, "pooled", input("x", "FP32", "[1,2,1,1]", "[0,0]"));
    CHECK(status == 400);
    CHECK(has(body, "these inputs cannot be computed: model 'pooled': "));
    const auto [wrong, why] = infer(c, "ids", input("ids", "INT64", "[1,1,1]", "[0]"));
    CHECK(wrong == 400);
    CHECK(has(why, "these inputs cannot be computed: model 'ids': "));
  }
  const std::pair<std::string, std::string> refused[] = {
      {"[1,3,2,2]", "shape is [1,3,2,2], expected [any,2,any,any]"},
      {"[2,2,2]", "shape is [2,2,2], expected [any,2,any,any]"},
      {"[1,2,2,3]", "data has 8 values, but its shape says 12"},
      {"[4294967296,2,1,1]", "shape[0] is 4294967296, expected 1 to 2147483647"},
      {"[2147483647,2,2147483647,1]", "expected at most 2^40 elements"},
      {"[1,2,0,2]", "shape[2] is 0, expected 1 to 2147483647"},
      {"[1,2,-2,2]", "shape must hold integers of at least 0"}};
  for (const auto& [shape, why] : refused) {
    CAPTURE(shape);
    const auto [status, body] = infer(c, "pooled", input("x", "FP32", shape, "[0,1,2,3,4,5,6,7]"));
    CHECK(status == 400);
    CHECK(has(body, why));
  }
  CHECK(infer(c, "pooled", input("x", "FP32", "[1,2,2,2]", "[0,1,2,3,4,5,6,7]")).first == 200);
  CHECK(has(infer(c, "ids", input("ids", "INT64", "[1,2,1]", "[-10,-8]")).second, "[1.5,3.5]"));
  CHECK(infer(c, "ids", input("ids", "INT64", "[1,1,1]", "[0]")).first == 400);
  CHECK(s.stop() == 0);
}

TEST_CASE("rows of any dimension, states and single numbers go as they are") {
  const repository r;
  r.add(test::recurrent(), "recurrent");
  r.add(test::recurrent(), "shaped",
        "input { name: \"rate\" data_type: TYPE_INT64 dims: [ 1 ] reshape: { shape: [ ] } }\n"
        "input { name: \"audio\" dims: [ 1, -1 ] }\n"
        "input { name: \"state\" dims: [ 2, -1, 3 ] }\n"
        "output { name: \"level\" dims: [ 1 ] reshape: { shape: [ 1, 1 ] } }\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string state = input("state", "FP32", "[2,1,3]", "[1,1,1,2,2,2]");
  const auto [status, body] = infer(c, "recurrent",
                                    input("rate", "INT64", "[]", "[5]") + "," + state + "," +
                                        input("audio", "FP32", "[1,4]", "[1,2,3,4]"));
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(has(body, R"({"name":"level","datatype":"FP32","shape":[1,1],"data":[10]})"));
  CHECK(has(body, R"({"name":"next","datatype":"FP32","shape":[2,1,3],"data":[6,6,6,7,7,7]})"));
  const auto [done, shaped] = infer(c, "shaped",
                                    state + "," + input("audio", "FP32", "[1,2]", "[1,2]") + "," +
                                        input("rate", "INT64", "[1]", "[5]"));
  CAPTURE(shaped);
  CHECK(done == 200);
  CHECK(has(shaped, R"("outputs":[{"name":"level","datatype":"FP32","shape":[1],"data":[3]}])"));
  CHECK(infer(c, "shaped",
              state + "," + input("audio", "FP32", "[2,1]", "[1,2]") + "," +
                  input("rate", "INT64", "[1]", "[5]"))
            .first == 400);  // Its configuration says 1.
  CHECK(s.stop() == 0);
}

TEST_CASE("a configuration bounds an open model's rows, or closes it") {
  const repository r;
  const auto config = [](const std::string& dims) {
    return "max_batch_size: 3\ninput { name: \"x\" data_type: TYPE_FP32 dims: " + dims +
           " }\noutput { name: \"y\" dims: [ 2, -1, -1 ] }\n" + test::parameter("slo_ms", "60000");
  };
  r.add(test::pooled(), "open", config("[ 2, -1, -1 ]"));
  r.add(test::pooled(), "closed", config("[ 2, 2, 2 ]") + "dynamic_batching { }\n");
  r.add(test::pooled(), "half", config("[ 2, 2, -1 ]"));
  r.add(test::pooled(), "wrong", config("[ 4, -1, -1 ]"));
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "wrong/config.pbtxt: input[0].dims: got [4, -1, -1]"));
  test::connection c{s.port()};
  const auto ask = [&](const std::string& model, const std::string& shape, int elements) {
    const auto [status, body] = infer(c, model, input("x", "FP32", shape, zeros(elements)));
    if (status != 200) return body;
    const std::size_t at = body.find("\"shape\":") + 8;
    return body.substr(at, body.find(']', at) + 1 - at);
  };
  CHECK(ask("open", "[1,2,2,4]", 16) == "[1,2,1,2]");
  CHECK(ask("open", "[3,2,4,2]", 48) == "[3,2,2,1]");
  CHECK(has(ask("open", "[4,2,2,2]", 32), "shape[0] is 4, expected 1 to 3"));
  CHECK(ask("closed", "[1,2,2,2]", 8) == "[1,2,1,1]");
  CHECK(ask("closed", "[2,2,2,2]", 16) == "[2,2,1,1]");
  CHECK(has(ask("closed", "[1,2,2,4]", 16), "expected [N,2,2,2]"));
  CHECK(ask("half", "[2,2,2,6]", 48) == "[2,2,1,3]");
  CHECK(has(ask("half", "[2,2,4,6]", 96), "expected [N,2,2,"));
  std::string shown = c.ask("GET", "/v2/models/open/config").second;
  std::erase_if(shown, [](char x) { return x == ' ' || x == '\n'; });
  CHECK(has(shown, R"("dims":[2,-1,-1])"));
  CHECK(s.stop() == 0);
}

/// An infer request with one input as binary data.
std::string binary(const std::string& model, const std::string& shape, std::size_t bytes) {
  const std::string json = R"({"inputs":[{"name":"x","datatype":"FP32","shape":)" + shape +
                           R"(,"parameters":{"binary_data_size":)" + std::to_string(bytes) +
                           R"(}}],"outputs":[)" +
                           R"({"name":"y","parameters":{"binary_data":true}}]})";
  return "POST /v2/models/" + model +
         "/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: " +
         std::to_string(json.size()) +
         "\r\nContent-Length: " + std::to_string(json.size() + bytes) + "\r\n\r\n" + json +
         std::string(bytes, '\0');
}

TEST_CASE("how large a request may be follows from its model") {
  const repository r;
  r.add(test::pooled(), "open");
  r.add(test::mlp(), "many",
        "max_batch_size: 128\ndynamic_batching { }\n" + test::parameter("slo_ms", "60000"));
  constexpr int side = 1450;
  const std::size_t large = std::size_t{2} * side * side * 4;
  REQUIRE(large > std::size_t{16} << 20U);
  const std::string shape = "[1,2," + std::to_string(side) + "," + std::to_string(side) + "]";
  {
    test::child_server s{INFERENCE_SERVER, r.options()};
    REQUIRE_MESSAGE(s.port() != 0, s.first_line);
    test::connection c{s.port()};
    const auto [status, body] = infer(c, "many", input("x", "FP32", "[100,32]", zeros(3200)));
    CHECK(status == 200);
    CHECK(has(body, R"("shape":[100,10])"));
    CHECK(has(infer(c, "many", input("x", "FP32", "[129,32]", "[0]")).second,
              "shape[0] is 129, expected 1 to 128"));
    c.send(binary("open", shape, large));
    const auto [done, answer] = c.answer();
    CHECK(done == 200);
    CHECK(has(answer, "\"shape\":[1,2,725,725]"));
    const auto [refused, why] =
        test::connection{s.port()}.ask("POST", "/v2/models/open/infer", std::string(large, ' '));
    CHECK(refused == 413);
    CHECK(has(why, "the JSON is over 16777216 bytes"));
    // What is no infer request of a model that is there has the usual limit.
    CHECK(test::connection{s.port()}
              .ask("POST", "/v2/models/none/infer", std::string(large, ' '))
              .first == 413);
    CHECK(s.stop() == 0);
  }
  test::child_server s{INFERENCE_SERVER, r.options({"--body-limit", "65536"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  c.send(binary("open", "[1,2,100,100]", 80000));
  CHECK(c.answer().first == 413);
  CHECK(s.stop() == 0);
}

TEST_CASE("an open model has no place in a plan, which says why") {
  const repository r;
  r.add(test::pooled(), "a");
  r.add(test::mlp(), "b");
  const test::profile_folder profile;
  profile.write("slo.csv", "model,slo_ms,mem_mb\na,9000,600\nb,9000,700\n");
  profile.write("plan.json", test::plan_of_both(9000, 9000));
  test::child_server s{INFERENCE_SERVER,
                       {"--repository", r.folder, "--cache", "off", "--profile", profile.path(),
                        "--plan", profile.path() + "/plan.json"}};
  CHECK(s.port() == 0);
  CHECK(s.wait() != 0);
  const std::string told = s.told_before + s.first_line;
  CAPTURE(told);
  CHECK(has(told, "input 'x', dimension 3 is dynamic and is called 'width'"));
}

TEST_CASE("an open model has no place in a pipeline, which says why") {
  const repository r;
  r.add(test::pooled(), "pooled");
  test::child_server s{INFERENCE_SERVER, r.options({"--pipeline", "auto"})};
  CHECK(s.port() == 0);
  CHECK(s.wait() == 2);
  CHECK(has(s.told_before + s.first_line, "input 'x', dimension 3 is dynamic"));
}

TEST_CASE("an output that is not named opens no model") {
  const repository r;
  // Of the rows alone, though the file's other output has no row for each.
  r.add(test::with_count(), "rows",
        test::parameter("slo_ms", "60000") +
            "max_batch_size: 4\ndynamic_batching { }\noutput { name: \"y\" dims: [ 4 ] }\n");
  r.add(test::with_count(), "all");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string two = input("x", "FP32", "[2,4]", "[1,0,2,0,0,3,0,0]");
  const auto [status, rows] = infer(c, "rows", two);
  CAPTURE(rows);
  CHECK(status == 200);
  CHECK(has(rows, R"("outputs":[{"name":"y","datatype":"FP32","shape":[2,4],)"
                  R"("data":[1,0,2,0,0,3,0,0]}])"));
  CHECK(has(c.ask("GET", "/v2/models/rows").second,
            R"("inputs":[{"name":"x","datatype":"FP32","shape":[-1,4]}])"));
  const auto [done, all] = infer(c, "all", two);
  CAPTURE(all);
  CHECK(done == 200);
  CHECK(has(all, R"({"name":"places","datatype":"INT64","shape":[2,3],"data":[0,0,1,0,2,1]})"));
  CHECK(s.stop() == 0);
}

TEST_CASE("warm-ups of an open model run with their shapes, and one that fails is said") {
  const repository r;
  const auto config = [](const std::string& dims) {
    return "max_batch_size: 2\nmodel_warmup { name: \"w\" batch_size: 2 count: 2 inputs { key: "
           "\"x\" value { data_type: TYPE_FP32 dims: " +
           dims + " random_data: true } } }\n";
  };
  r.add(test::pooled(), "good", config("[ 2, 6, 4 ]"));
  r.add(test::pooled(), "bad", config("[ 2, 6, 1 ]"));
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "bad/config.pbtxt: model_warmup[0]: model 'bad': "));
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/models/bad").first == 404);
  CHECK(infer(c, "good", input("x", "FP32", "[1,2,2,2]", zeros(8))).first == 200);
  CHECK(s.stop() == 0);
}

/// Strings as binary data.
std::string encoded(const std::vector<std::string>& all) {
  std::string bytes;
  for (const std::string& one : all) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(one.size() >> shift & 0xFFU);
    }
    bytes += one;
  }
  return bytes;
}
/// A request of `test::strings` with binary data, which asks for one output.
std::string binary_strings(const std::string& shape, const std::string& text, bool is_binary) {
  const std::string json =
      R"({"inputs":[{"name":"text","datatype":"BYTES","shape":)" + shape +
      R"(,"parameters":{"binary_data_size":)" + std::to_string(text.size()) +
      R"(}},{"name":"end","datatype":"BYTES","shape":[],"data":["!"]}],"outputs":[)" +
      R"({"name":"joined","parameters":{"binary_data":)" + (is_binary ? "true" : "false") + "}}]}";
  return "POST /v2/models/texts/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: " +
         std::to_string(json.size()) +
         "\r\nContent-Length: " + std::to_string(json.size() + text.size()) + "\r\n\r\n" + json +
         text;
}

TEST_CASE("models with strings are served, as JSON and as binary data") {
  const repository r;
  r.add(test::strings(), "texts");
  r.add(test::spelt_numbers(), "numbers");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before,
            "model 'texts': input 'text' is of BYTES (strings): each of its requests"));
  test::connection c{s.port()};
  const std::string meta = c.ask("GET", "/v2/models/texts").second;
  CHECK(has(meta, R"({"name":"text","datatype":"BYTES","shape":[-1,-1]})"));
  CHECK(has(meta, R"({"name":"spelt","datatype":"BYTES","shape":[2]})"));
  std::string shown = c.ask("GET", "/v2/models/texts/config").second;
  std::erase_if(shown, [](char x) { return x == ' ' || x == '\n'; });
  CHECK(has(shown, R"({"name":"text","data_type":"TYPE_STRING","dims":[-1,-1],)"));
  const auto [status, body] =
      infer(c, "texts",
            input("text", "BYTES", "[2,2]", R"(["a","",["\u00fc\"","d"]])") + "," +
                input("end", "BYTES", "[]", R"(["!"])"));
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(has(body,
            R"({"name":"joined","datatype":"BYTES","shape":[2,2],"data":["a!","!","ü\"!","d!"]})"));
  CHECK(has(body, R"({"name":"text","datatype":"BYTES","shape":[2,2],"data":["a","","ü\"","d"]})"));
  CHECK(has(body, R"({"name":"spelt","datatype":"BYTES","shape":[2],"data":["7","8"]})"));
  const auto send = [&](const std::string& shape, const std::string& text, bool is_binary) {
    c.send(binary_strings(shape, text, is_binary));
    return c.answer();
  };
  const std::string odd{"\0\xff", 2};
  CHECK(has(send("[1,2]", encoded({odd, "b"}), true).second, encoded({odd + "!", "b!"})));
  const auto [not_json, why] = send("[1,2]", encoded({"b", odd}), false);
  CHECK(not_json == 400);
  CHECK(has(why, "output 'joined': string 1 is not UTF-8, which JSON cannot say"));
  const std::string large(std::size_t{16} << 20U, 'x');
  const auto [done, answer] = send("[1,1]", encoded({large}), true);
  CHECK(done == 200);
  CHECK(answer.ends_with(encoded({large + "!"})));
  CHECK(has(send("[1,1]", encoded({large}), false).second, "x!\"]}]}"));
  const std::pair<std::string, std::string> refused[] = {
      {encoded({"a"}), "inputs[0]: string 1 of 'text' is missing"},
      {encoded({"a"}) + std::string(4, '\xff'), "inputs[0]: string 1 of 'text' is longer than"},
      {encoded({"a", "b"}) + "c", "inputs[0]: 1 bytes of binary data are left over"}};
  for (const auto& [text, line] : refused) {
    const auto [wrong, told] = send("[1,2]", text, true);
    CHECK(wrong == 400);
    CHECK(has(told, line));
  }
  // What empty strings do not show is learned from requests.
  CHECK(has(infer(c, "numbers", input("text", "BYTES", "[2]", R"(["1.5","-2"])")).second,
            R"("data":[1.5,-2])"));
  const auto [no_number, words] = infer(c, "numbers", input("text", "BYTES", "[1]", R"(["x"])"));
  CHECK(no_number == 400);
  CHECK(has(words, "these inputs cannot be computed: model 'numbers': "));
  CHECK(s.stop() == 0);
}

TEST_CASE("a configuration of strings must agree with the model, and may warm it up") {
  const repository r;
  const auto config = [](const std::string& type, const std::string& data) {
    return "input { name: \"text\" data_type: " + type +
           " dims: [ -1 ] }\noutput { name: \"y\" data_type: TYPE_FP32 dims: [ -1 ] }\n"
           "model_warmup { name: \"w\" inputs { key: \"text\" value { data_type: TYPE_STRING "
           "dims: [ 3 ] " +
           data + ": true } } }\n";
  };
  r.add(test::spelt_numbers(), "good", config("TYPE_STRING", "random_data"));
  r.add(test::spelt_numbers(), "empty", config("TYPE_STRING", "zero_data"));
  r.add(test::spelt_numbers(), "other", config("TYPE_FP32", "random_data"));
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "empty/config.pbtxt: model_warmup[0]: model 'empty': "));
  CHECK(has(s.told_before,
            "other/config.pbtxt: input[0].data_type: got TYPE_FP32, expected TYPE_STRING, as"));
  test::connection c{s.port()};
  CHECK(has(infer(c, "good", input("text", "BYTES", "[1]", R"(["3"])")).second, R"("data":[3])"));
  CHECK(s.stop() == 0);
}

TEST_CASE("what Triton's clients read of logs and traces is there, and changes where it can") {
  const repository r;
  r.add(test::mlp(), "mlp");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(has(c.ask("GET", "/v2/logging").second, R"("log_verbose_level":0)"));
  CHECK(has(c.ask("GET", "/v2/trace/setting").second, R"("trace_level":["OFF"])"));
  const auto set = [&](const std::string& path, const std::string& body) {
    return c.ask("POST", path, body, test::shown_token);
  };
  for (const char* path : {"/v2/logging", "/v2/models/mlp/trace/setting"}) {
    test::connection refused{s.port()};  // Which ends with its answer, as nobody reads the body.
    CHECK(refused.ask("POST", path, "{}").first == 401);
  }
  CHECK(set("/v2/trace/setting", R"({"trace_level":["OFF"]})").first == 200);
  CHECK(set("/v2/models/mlp/trace/setting", R"({"trace_level":null})").first == 200);
  CHECK(has(c.ask("GET", "/v2/models/mlp/trace/setting").second, R"("trace_level":["OFF"])"));
  CHECK(set("/v2/models/mlp/trace/setting", R"({"trace_level":["TENSORS"]})").first == 400);
  CHECK(set("/v2/models/nobody/trace/setting", "{}").first == 404);
  CHECK(set("/v2/logging", R"({"log_verbose_level":1})").first == 400);
  // From now on a load is not logged, but errors are.
  const auto load = [&](const std::string& name) {
    return c.ask("POST", "/v2/repository/models/" + name + "/load", "", test::shown_token).first;
  };
  CHECK(has(set("/v2/logging", R"({"log_info":false})").second, R"("log_info":false)"));
  CHECK(load("mlp") == 200);
  test::spill(r.folder + "/mlp/config.pbtxt", "max_batch_size: -1\n");
  CHECK(load("mlp") == 400);
  CHECK(has(set("/v2/logging", R"({"log_info":true})").second, R"("log_info":true)"));
  CHECK(s.stop() == 0);
  const std::string log = s.read_rest();
  CAPTURE(log);
  CHECK(has(log, "log: a client asked for info false, warning true, error true\n"));
  CHECK_FALSE(has(log, "model 'mlp': loaded"));
  CHECK(has(log, "max_batch_size: got -1"));
  CHECK(has(log, "SIGTERM: draining"));
}

/// A request of a sequence. @param flags "s" starts it, "e" ends it.
std::string of_sequence(const std::string& id, const std::string& flags) {
  std::string p = R"(,"parameters":{"sequence_id":)" + id;
  if (has(flags, "s")) p += R"(,"sequence_start":true)";
  if (has(flags, "e")) p += R"(,"sequence_end":true)";
  return p + "}";
}

const std::string total_config =
    "max_batch_size: 4 input { name: 'x' data_type: TYPE_FP32 dims: 1 } "
    "output { name: 'y' data_type: TYPE_FP32 dims: 5 } "
    "sequence_batching { max_sequence_idle_microseconds: 600000000 control_input [ "
    "{ name: 'start' control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }, "
    "{ name: 'end' control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 3 ] } }, "
    "{ name: 'id' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } } ] "
    "state { input_name: 'total' output_name: 'next' data_type: TYPE_FP32 dims: 1 } }\n";

TEST_CASE("each request of a sequence begins with the state that the one before it has left") {
  const repository r;
  r.add(test::running_total(), "total", total_config);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "model 'total': its requests belong to sequences: "));
  test::connection c{s.port()};
  const std::string meta = c.ask("GET", "/v2/models/total").second;
  CHECK(has(meta, R"("inputs":[{"name":"x","datatype":"FP32","shape":[-1,1]}])"));
  CHECK(has(meta, R"("outputs":[{"name":"y","datatype":"FP32","shape":[-1,5]}])"));
  CHECK(has(c.ask("GET", "/v2/models/total/config").second, "CONTROL_SEQUENCE_CORRID"));
  const auto ask = [&](const std::string& x, const std::string& id, const std::string& flags) {
    const auto [status, body] =
        infer(c, "total", input("x", "FP32", "[1,1]", "[" + x + "]"), of_sequence(id, flags));
    const std::size_t at = body.find("\"data\":");
    return status == 200 ? body.substr(at + 7, body.find(']', at) - at - 6)
                         : std::to_string(status) + " " + body;
  };
  CHECK(ask("1", "7", "s") == "[1,1,0,7,0]");
  CHECK(ask("2", "7", "") == "[3,0,0,7,1]");
  CHECK(ask("10", "8", "s") == "[10,1,0,8,0]");  // Another one, between them.
  CHECK(ask("3", "7", "") == "[6,0,0,7,3]");
  // What cannot be computed leaves the state as it was.
  CHECK(ask("-2", "7", "").starts_with("400 "));
  CHECK(ask("4", "7", "e") == "[10,0,3,7,6]");
  CHECK(has(ask("5", "7", ""),
            "sequence 7 of model 'total' is not under way: expected sequence_start with its first "
            "request"));
  CHECK(ask("5", "8", "s") == "[5,1,0,8,0]");  // Again from the beginning.
  CHECK(ask("5", "8", "se") == "[5,1,3,8,0]");
  CHECK(
      has(ask("5", "0", "s"), "sequence_id is no id of a sequence, expected 1 to 922337203685477"));
  CHECK(has(ask("5", "\"a\"", "s"), "sequence_id is no id of a sequence"));
  const auto [none, why] = infer(c, "total", input("x", "FP32", "[1,1]", "[1]"));
  CHECK(none == 400);
  CHECK(has(why, "parameters.sequence_id is missing: model 'total' has sequences"));
  const auto [two, rows] =
      infer(c, "total", input("x", "FP32", "[2,1]", "[1,2]"), of_sequence("9", "s"));
  CHECK(two == 400);
  CHECK(has(rows, "inputs have 2 rows, expected 1"));
  CHECK(s.stop() == 0);
}

TEST_CASE("requests of one sequence that come at one time run in turns, whoever sends them") {
  const repository r;
  r.add(test::running_total(), "total", total_config);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection first{s.port()};
  for (const char* id : {"1", "2"}) {
    CHECK(infer(first, "total", input("x", "FP32", "[1,1]", "[0]"), of_sequence(id, "s")).first ==
          200);
  }
  std::vector<std::thread> clients;
  for (int k = 0; k < 6; ++k) {
    clients.emplace_back([&, k] {
      test::connection c{s.port()};
      for (int i = 0; i < 20; ++i) {
        CHECK(infer(c, "total", input("x", "FP32", "[1,1]", "[1]"),
                    of_sequence(k % 2 == 0 ? "1" : "2", ""))
                  .first == 200);
      }
    });
  }
  for (std::thread& t : clients) t.join();
  for (const char* id : {"1", "2"}) {
    CHECK(
        has(infer(first, "total", input("x", "FP32", "[1,1]", "[0]"), of_sequence(id, "e")).second,
            std::string{R"("data":[60,0,3,)"} + id + ",60]"));
  }
  CHECK(s.stop() == 0);
}

TEST_CASE("a sequence that idles is over, and a state that is an input outlives its request") {
  const repository r;
  r.add(test::running_total(), "short",
        "max_batch_size: 4 sequence_batching { max_sequence_idle_microseconds: 1000 state { "
        "input_name: 'total' output_name: 'next' } }");
  r.add(test::with_last(), "last",
        "max_batch_size: 4 output { name: 'y' } output { name: 'x' } sequence_batching { state { "
        "input_name: 'before' output_name: 'x' } }");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string four =
      input("x", "FP32", "[1,1]", "[1]") + "," + input("start", "FP32", "[1,1]", "[0]") + "," +
      input("end", "FP32", "[1,1]", "[0]") + "," + input("id", "INT64", "[1,1]", "[0]");
  CHECK(infer(c, "short", four, of_sequence("1", "s")).first == 200);
  CHECK(test::soon([&] { return infer(c, "short", four, of_sequence("1", "")).first == 400; }));
  for (int i = 0; i < 20; ++i) {
    const std::string data = "[" + std::to_string(i) + ",1,2]";
    const auto [status, body] =
        infer(c, "last", input("x", "FP32", "[1,3]", data), of_sequence("7", i == 0 ? "s" : ""));
    CHECK(status == 200);
    CHECK(has(body, i == 0 ? "[0,1,2]" : "\"data\":[" + std::to_string(2 * i - 1) + ",2,4]"));
    CHECK(has(body, R"({"name":"x","datatype":"FP32","shape":[1,3],"data":)" + data));
  }
  CHECK(s.stop() == 0);
}

TEST_CASE("sequences of a model that is replaced are over") {
  const repository r;
  r.add(test::running_total(), "total", total_config);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const std::string x = input("x", "FP32", "[1,1]", "[1]");
  CHECK(infer(c, "total", x, of_sequence("1", "s")).first == 200);
  const std::string call = "/v2/repository/models/total/load";
  CHECK(c.ask("POST", call, "", test::shown_token).first == 200);
  CHECK(infer(c, "total", x, of_sequence("1", "")).first == 400);
  CHECK(infer(c, "total", x, of_sequence("1", "s")).first == 200);
  CHECK(s.stop() == 0);
}

TEST_CASE("a configuration of sequences that does not fit the model says where") {
  const std::pair<std::string, std::string> wrong[] = {
      {"name: 'start' control { kind: CONTROL_SEQUENCE_START int32_false_true: [0, 1] }",
       "sequence_batching.control_input[0]: got TYPE_INT32, expected TYPE_FP32"},
      {"name: 'none' control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0, 1] }",
       "sequence_batching.control_input[0].name: got 'none', expected one of x, start, end, total, "
       "id"},
      {"name: 'id' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 }",
       "sequence_batching.control_input[0]: got TYPE_UINT64, expected TYPE_INT64"}};
  const repository r;
  r.add(test::running_total(), "dims",
        "max_batch_size: 4 sequence_batching { state { input_name: 'total' output_name: 'next' "
        "dims: 2 } }");
  r.add(test::running_total(), "twice",
        "max_batch_size: 4 sequence_batching { state { input_name: 'total' output_name: 'next' } "
        "state { input_name: 'total' output_name: 'next' } }");
  for (std::size_t i = 0; i < std::size(wrong); ++i) {
    r.add(test::running_total(), "m" + std::to_string(i),
          "max_batch_size: 4 sequence_batching { control_input { " + wrong[i].first + " } }");
  }
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CAPTURE(s.told_before);
  for (const auto& [config, why] : wrong) CHECK(has(s.told_before, why));
  CHECK(has(s.told_before,
            "sequence_batching.state[0].dims: got [2] without its batch dimension, expected"));
  CHECK(has(s.told_before,
            "sequence_batching.state[1].input_name: got 'total', expected each input once"));
  CHECK(s.stop() == 0);
}

}  // namespace
}  // namespace cohort::inference::open_server_test
