// SPDX-License-Identifier: Apache-2.0
// Ensembles of a repository, as clients see them.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/onnx_models.hpp>
#include "inference/onnx_repository.hpp"

namespace cohort::inference::ensemble_server_test {
namespace {

using repository = test::onnx_repository;
using runtime::data_type;
using test::onnx_builder;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

/// y = 2 x, of rows of so many numbers; 0: of tensors of any shape.
formats::onnx_model twice(std::int64_t wide) {
  onnx_builder b{"twice"};
  const onnx_builder::declared shape =
      wide > 0 ? onnx_builder::declared{{.name = "n"}, {.value = wide}}
               : onnx_builder::declared{{.name = "n"}, {.name = "high"}, {.name = "wide"}};
  const std::string x = b.input("x", data_type::f32, shape);
  b.node("Add", {x, x}, {}, "y");
  b.output("y", data_type::f32, shape);
  return b.done();
}
/// z = a - b.
formats::onnx_model difference(std::int64_t wide) {
  onnx_builder b{"difference"};
  const onnx_builder::declared shape{{.name = "n"}, {.value = wide}};
  b.node("Sub", {b.input("a", data_type::f32, shape), b.input("b", data_type::f32, shape)}, {},
         "z");
  b.output("z", data_type::f32, shape);
  return b.done();
}

std::string tensor(const std::string& side, const std::string& name, const std::string& dims) {
  return side + " { name: '" + name + "' data_type: TYPE_FP32 dims: [" + dims + "] }\n";
}
std::string step(const std::string& model, const std::string& inputs, const std::string& outputs) {
  return "step { model_name: '" + model + "' " + inputs + outputs + "}\n";
}
std::string in(const std::string& name, const std::string& is) {
  return "input_map { key: '" + name + "' value: '" + is + "' } ";
}
std::string out(const std::string& name, const std::string& is) {
  return "output_map { key: '" + name + "' value: '" + is + "' } ";
}
/// x, 3 numbers a row: 4 x - 2 x.
const std::string diamond =
    "platform: 'ensemble'\nmax_batch_size: 8\n" + tensor("input", "x", "3") +
    tensor("output", "z", "3") + tensor("output", "doubled", "3") + "ensemble_scheduling {\n" +
    step("difference", in("a", "four") + in("b", "doubled"), out("z", "z")) +
    step("twice", in("x", "doubled"), out("y", "four")) +
    step("twice", in("x", "x"), out("y", "doubled")) + "}\n";

void add_ensemble(const repository& r, const std::string& name, const std::string& config) {
  std::filesystem::create_directories(r.folder + "/" + name + "/1");
  test::spill(r.folder + "/" + name + "/config.pbtxt", config);
}
std::pair<int, std::string> infer(test::connection& c, const std::string& model,
                                  const std::string& shape, const std::string& data,
                                  const std::string& more = "") {
  return c.ask("POST", "/v2/models/" + model + "/infer",
               R"({"inputs":[{"name":"x","datatype":"FP32","shape":)" + shape + R"(,"data":)" +
                   data + "}]" + more + "}");
}
int load(test::connection& c, const std::string& model, const std::string& what = "load") {
  return c.ask("POST", "/v2/repository/models/" + model + "/" + what, "", test::shown_token).first;
}

TEST_CASE("an ensemble answers as its models do, one behind the other") {
  const repository r;
  r.add(twice(3), "twice");
  r.add(difference(3), "difference");
  add_ensemble(r, "diamond", diamond);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(c.ask("GET", "/v2/models/diamond/ready").first == 200);
  const std::string meta = c.ask("GET", "/v2/models/diamond").second;
  CHECK(has(meta, R"("platform":"ensemble")"));
  CHECK(has(meta, R"({"name":"x","datatype":"FP32","shape":[-1,3]})"));
  CHECK(has(c.ask("GET", "/v2/models/diamond/config").second, R"("ensemble_scheduling")"));
  const auto [status, body] = infer(c, "diamond", "[2,3]", "[1,2,3,4,5,6]");
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(has(body, R"({"name":"z","datatype":"FP32","shape":[2,3],"data":[2,4,6,8,10,12]})"));
  CHECK(has(body, R"({"name":"doubled","datatype":"FP32","shape":[2,3],"data":[2,4,6,8,10,12]})"));
  CHECK(infer(c, "diamond", "[9,3]", "[0]").first == 400);  // Of 8 rows.
  // Ranked outputs, and one output alone.
  CHECK(has(infer(c, "diamond", "[1,3]", "[1,3,2]",
                  R"(,"outputs":[{"name":"z","parameters":{"classification":1}}])")
                .second,
            R"("shape":[1,1],"data":["6.000000:1"])"));
  std::vector<std::thread> clients;
  for (int k = 1; k <= 6; ++k) {
    clients.emplace_back([&, k] {
      test::connection mine{s.port()};
      const std::string n = std::to_string(k);
      for (int i = 0; i < 20; ++i) {
        const auto [done, answer] = infer(mine, "diamond", "[1,3]", "[" + n + ",0," + n + "]");
        CHECK(done == 200);
        const std::string two = std::to_string(2 * k);
        CHECK(has(answer, R"("name":"z","datatype":"FP32","shape":[1,3],"data":[)" + two + ",0," +
                              two + "]"));
      }
    });
  }
  for (std::thread& t : clients) t.join();
  const std::string stats = c.ask("GET", "/v2/models/diamond/stats").second;
  CHECK(has(stats, R"("inference_count":123,"execution_count":122,)"));  // One had two rows.
  for (const char* what : {"success", "queue", "compute_input", "compute_infer"}) {
    CHECK(has(stats, '"' + std::string{what} + R"(":{"count":122,)"));
  }
  CHECK(has(c.ask("GET", "/metrics").second,
            "cohort_requests_total{model=\"diamond\",outcome=\"completed\"} 123\n"));
  CHECK(has(c.ask("GET", "/v2/models/twice/stats").second, R"("success":{"count":244,)"));
  CHECK(s.stop() == 0);
}

/// y, of one type, is x, of another.
formats::onnx_model cast(data_type from, data_type to, std::int64_t onnx_type) {
  onnx_builder b{"cast"};
  const onnx_builder::declared shape{{.name = "n"}, {.value = 2}};
  b.node("Cast", {b.input("x", from, shape)}, {{"to", onnx_type}}, "y");
  b.output("y", to, shape);
  return b.done();
}

TEST_CASE("between its models an ensemble has halves and strings") {
  const repository r;
  r.add(cast(data_type::f32, data_type::f16, 10), "to_half");
  r.add(cast(data_type::f16, data_type::f32, 1), "from_half");
  r.add(test::spelt_numbers(), "spelt");
  r.add(cast(data_type::f32, data_type::bytes, 8), "spell");
  add_ensemble(r, "halved",
               "platform: 'ensemble'\nmax_batch_size: 4\n" + tensor("input", "x", "2") +
                   tensor("output", "y", "2") + "ensemble_scheduling {\n" +
                   step("to_half", in("x", "x"), out("y", "half")) +
                   step("from_half", in("x", "half"), out("y", "y")) + "}\n");
  add_ensemble(r, "spoken",
               "platform: 'ensemble'\n" + tensor("input", "x", "-1, 2") +
                   "output { name: 'y' data_type: TYPE_STRING dims: [-1, 2] }\n" +
                   "ensemble_scheduling {\n" + step("spell", in("x", "x"), out("y", "y")) + "}\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto [status, body] = infer(c, "halved", "[1,2]", "[1,2049]");
  CAPTURE(body);
  CHECK(status == 200);
  CHECK(has(body, R"("datatype":"FP32","shape":[1,2],"data":[1,2048])"));  // A half has 11 bits.
  const auto [said, words] = infer(c, "spoken", "[1,2]", "[1.5,-2]");
  CAPTURE(words);
  CHECK(said == 200);
  CHECK(has(words, R"("datatype":"BYTES","shape":[1,2],"data":["1.5","-2"])"));
  CHECK(s.stop() == 0);
}

TEST_CASE("an ensemble needs its models when it is asked, not when it is loaded") {
  const repository r;
  r.add(twice(3), "twice");
  add_ensemble(r, "diamond", diamond);
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto [status, why] = c.ask("GET", "/v2/models/diamond/ready");
  CHECK(status == 503);
  CHECK(has(why, "ensemble 'diamond': model 'difference' is not served"));
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 503);
  CHECK(has(c.ask("GET", "/v2/models/diamond/stats").second, R"("fail":{"count":1,)"));
  CHECK(has(c.ask("POST", "/v2/repository/index").second,
            R"({"name":"diamond","version":"1","state":"UNAVAILABLE",)"
            R"("reason":"its model 'difference' is not served"})"));
  const auto [lacks, what] =
      c.ask("POST", "/v2/repository/models/diamond/load", "{}", test::shown_token);
  CHECK(lacks == 424);
  CHECK(has(what, "ensemble 'diamond': model 'difference' is not loaded: "));
  r.add(difference(3), "difference");
  CHECK(load(c, "diamond") == 200);  // It loads what it lacks.
  CHECK(has(c.ask("POST", "/v2/repository/index").second,
            R"({"name":"difference","version":"1","state":"READY")"));
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  // Its models go and come while it is asked: each request has an answer.
  std::atomic<bool> is_over{false};
  std::thread client{[&] {
    test::connection mine{s.port()};
    while (!is_over) {
      const int got = infer(mine, "diamond", "[1,3]", "[1,2,3]").first;
      CHECK_MESSAGE((got == 200 || got == 503 || got == 404), got);
    }
  }};
  for (int i = 0; i < 5; ++i) {
    CHECK(load(c, "twice", "unload") == 200);
    CHECK(load(c, "twice") == 200);
    CHECK(load(c, "diamond") == 200);
  }
  is_over = true;
  client.join();
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  const auto [refused, field] =
      c.ask("POST", "/v2/repository/models/diamond/unload",
            R"({"parameters":{"unload_dependents":true}})", test::shown_token);
  CHECK(refused == 400);
  CHECK(has(field, "parameters.unload_dependents is true, expected false"));
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  CHECK(load(c, "diamond", "unload") == 200);
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 404);
  CHECK(infer(c, "twice", "[1,3]", "[1,2,3]").first == 200);
  CHECK(s.stop() == 0);
}

TEST_CASE("an ensemble that is loaded brings the models that it lacks") {
  const repository r;
  r.add(twice(3), "twice");
  r.add(difference(3), "difference");
  r.add(twice(3), "other");
  add_ensemble(r, "diamond", diamond);
  test::child_server s{INFERENCE_SERVER, r.options({"--load-model", "diamond"})};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  CHECK(infer(c, "other", "[1,3]", "[1,2,3]").first == 404);
  CHECK(load(c, "twice", "unload") == 200);
  CHECK(has(c.ask("POST", "/v2/repository/index").second,
            R"({"name":"twice","version":"1","state":"UNAVAILABLE","reason":"unloaded"})"));
  CHECK(load(c, "diamond") == 200);
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  // An ensemble of an ensemble lacks what that one lacks.
  add_ensemble(r, "around",
               "platform: 'ensemble'\nmax_batch_size: 8\n" + tensor("input", "x", "3") +
                   tensor("output", "z", "3") + "ensemble_scheduling {\n" +
                   step("diamond", in("x", "x"), out("z", "z") + out("doubled", "unused")) + "}\n");
  CHECK(load(c, "difference", "unload") == 200);
  CHECK(load(c, "around") == 200);
  CHECK(infer(c, "around", "[1,3]", "[1,2,3]").first == 200);
  CHECK(load(c, "difference", "unload") == 200);
  CHECK(has(c.ask("POST", "/v2/repository/index").second,
            R"({"name":"around","version":"1","state":"UNAVAILABLE",)"
            R"("reason":"its model 'difference' is not served"})"));
  CHECK(s.stop() == 0);
}

TEST_CASE("with --exit-on-error an ensemble without its models is an error") {
  const repository r;
  r.add(twice(3), "twice");
  add_ensemble(r, "diamond", diamond);
  test::child_server s{INFERENCE_SERVER, r.options({"--exit-on-error=true"})};
  CHECK(s.port() == 0);
}

TEST_CASE("an ensemble that names a version lacks that version") {
  const repository r;
  r.add(twice(3), "twice");
  add_ensemble(r, "second",
               "platform: 'ensemble'\nmax_batch_size: 8\n" + tensor("input", "x", "3") +
                   tensor("output", "y", "3") +
                   "ensemble_scheduling {\nstep { model_name: 'twice' model_version: 2 " +
                   in("x", "x") + out("y", "y") + "}\n}\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto [status, why] =
      c.ask("POST", "/v2/repository/models/second/load", "{}", test::shown_token);
  CHECK(status == 424);
  CHECK(has(why, "its model 'twice' is not served in the version that it names"));
  CHECK(s.stop() == 0);
}

TEST_CASE("what a step refuses or is late for is the ensemble's answer, and says where") {
  const repository r;
  r.add(twice(4), "twice");  // Of another width.
  r.add(difference(3), "difference");
  r.add(twice(0), "any");
  add_ensemble(r, "diamond", diamond);
  add_ensemble(r, "passed",
               "platform: 'ensemble'\n" + tensor("input", "x", "-1, -1, 2") +
                   tensor("output", "x", "-1, -1, 2") + tensor("output", "y", "-1, -1, 2") +
                   "ensemble_scheduling {\n" + step("any", in("x", "x"), out("y", "y")) + "}\n");
  add_ensemble(r, "outer",
               "platform: 'ensemble'\n" + tensor("input", "x", "-1, -1, 2") +
                   tensor("output", "four", "-1, -1, 2") + "ensemble_scheduling {\n" +
                   step("any", in("x", "y"), out("y", "four")) +
                   step("passed", in("x", "x"), out("y", "y")) + "}\n");
  const auto endless = [](const std::string& of) {
    return "platform: 'ensemble'\n" + tensor("input", "x", "-1") + tensor("output", "y", "-1") +
           "ensemble_scheduling {\n" + step(of, in("x", "x"), out("y", "y")) + "}\n";
  };
  add_ensemble(r, "chicken", endless("egg"));
  add_ensemble(r, "egg", endless("chicken"));
  add_ensemble(r, "circle", endless("any") + "");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  test::connection c{s.port()};
  const auto [status, why] = infer(c, "diamond", "[1,3]", "[1,2,3]");
  CHECK(status == 400);
  CHECK(has(why, R"({"error":"ensemble 'diamond', step 2 ('twice'): )"));
  CHECK(has(why, "shape is [1,3], expected [N,4]"));
  const auto [rank, which] = infer(c, "circle", "[3]", "[1,2,3]");
  CHECK(rank == 400);
  CHECK(has(which, "ensemble 'circle', step 0 ('any'): "));
  // An input that is an output, large enough for an answer in pieces, and an ensemble in another.
  std::string many = "[1";
  for (int i = 1; i < 2 * 40'000; ++i) many += ",1";
  const auto [done, large] = infer(c, "passed", "[100,400,2]", many + "]");
  CHECK(done == 200);
  CHECK(has(large, R"({"name":"x","datatype":"FP32","shape":[100,400,2],"data":[1,1,1)"));
  CHECK(has(large, R"({"name":"y","datatype":"FP32","shape":[100,400,2],"data":[2,2,2)"));
  const auto [nested, four] = infer(c, "outer", "[1,1,2]", "[1,2]");
  CAPTURE(four);
  CHECK(nested == 200);
  CHECK(has(four, R"("shape":[1,1,2],"data":[4,8])"));
  const auto [deep, turns] = infer(c, "chicken", "[1]", "[1]");
  CHECK(deep == 400);
  CHECK(has(turns, "at most 8"));
  // One deadline for all steps.
  const auto [late, cause] =
      infer(c, "outer", "[1,1,2]", "[1,2]", R"(,"parameters":{"timeout":1})");
  CHECK(late == 504);
  CHECK(has(cause, "ensemble 'outer', step "));
  CHECK(s.stop() == 0);
}

TEST_CASE("an ensemble that cannot be run is not loaded, and says why") {
  const repository r;
  r.add(twice(3), "twice");
  add_ensemble(r, "circle",
               "platform: 'ensemble'\n" + tensor("input", "x", "3") + tensor("output", "y", "3") +
                   "ensemble_scheduling {\n" + step("twice", in("x", "y"), out("y", "y")) + "}\n");
  test::child_server s{INFERENCE_SERVER, r.options()};
  REQUIRE_MESSAGE(s.port() != 0, s.first_line);
  CHECK(has(s.told_before, "circle/config.pbtxt: ensemble_scheduling: "));
  test::connection c{s.port()};
  CHECK(infer(c, "circle", "[1,3]", "[1,2,3]").first == 404);
  CHECK(infer(c, "twice", "[1,3]", "[1,2,3]").first == 200);
  // A client that leaves takes its steps along.
  add_ensemble(r, "diamond", diamond);
  r.add(difference(3), "difference");
  CHECK(load(c, "difference") == 200);
  CHECK(load(c, "diamond") == 200);
  const std::string body =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]})";
  for (int i = 0; i < 20; ++i) {
    test::connection gone{s.port()};
    gone.send("POST /v2/models/diamond/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  CHECK(infer(c, "diamond", "[1,3]", "[1,2,3]").first == 200);
  CHECK(s.stop() == 0);
}

}  // namespace
}  // namespace cohort::inference::ensemble_server_test
