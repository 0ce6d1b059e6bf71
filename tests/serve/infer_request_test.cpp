// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>

namespace cohort::serve {
namespace {
using namespace std::chrono_literals;

const model_meta floats{"m",
                        "test",
                        {{"x", runtime::data_type::f32, {2, 2}}},
                        {{"y", runtime::data_type::f32, {2}}},
                        20ms};
const model_meta integers{"m", "test", {{"x", runtime::data_type::i32, {2}}}, {}, 20ms};

std::string complaint(const std::string& body, const model_meta& m = floats) {
  infer_parser p{4};
  const auto r = p.parse(body, m);
  const auto* e = std::get_if<protocol_error>(&r);
  if (e == nullptr) return "";
  CHECK(e->status == 400);
  return e->message;
}
std::string with(const std::string& shape, const std::string& data,
                 const std::string& datatype = "FP32", const std::string& extra = "") {
  return "{" + extra + R"("inputs":[{"name":"x","datatype":")" + datatype + R"(","shape":)" +
         shape + R"(,"data":)" + data + "}]}";
}

TEST_CASE("a request is read: id, timeout, rows, flat and nested data") {
  infer_parser p{4};
  auto flat = p.parse(
      with("[2,2,2]", "[1,2,3,4,5,6,7,8.5]", "FP32", R"("id":"q","parameters":{"timeout":2500},)"),
      floats);
  auto* r = std::get_if<infer_request>(&flat);
  REQUIRE(r != nullptr);
  CHECK(r->id == "q");
  CHECK(r->rows == 2);
  CHECK(r->timeout == duration{2500us});
  float last = 0;
  std::memcpy(&last, r->data.data() + 28, 4);
  CHECK(last == 8.5F);
  auto nested = p.parse(with("[2,2,2]", "[[[1,2],[3,4]],[[5,6],[7,8.5]]]"), floats);
  REQUIRE(std::get_if<infer_request>(&nested) != nullptr);
  CHECK(std::get<infer_request>(nested).data == r->data);
  CHECK_FALSE(std::get<infer_request>(nested).timeout.has_value());
}
TEST_CASE("every mistake is answered by one line that names it") {
  CHECK(complaint("").starts_with("the body is not valid JSON"));
  CHECK(complaint("{\"inputs\":[").starts_with("the body is not valid JSON"));
  CHECK(complaint("[]") == "the body must be an object, not an array");
  CHECK(complaint("{}") == "inputs is missing");
  CHECK(complaint(R"({"inputs":{}})") == "inputs must be an array, not an object");
  CHECK(complaint(R"({"inputs":[]})") == "inputs has 0 tensors, expected 1 ('x')");
  CHECK(complaint(R"({"inputs":[1]})") == "inputs[0] must be an object, not a number");
  CHECK(complaint(R"({"inputs":[],"inputs":[]})") == "inputs is given twice");
  CHECK(complaint(R"({"inputs":[{"datatype":"FP32"}]})") == "inputs[0].name is missing");
  CHECK(complaint(R"({"inputs":[{"name":"z"}]})") ==
        "input 'z' is unknown to model 'm', expected 'x'");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "INT32")) ==
        "inputs[0].datatype is INT32, expected FP32");
  CHECK(complaint(with("[1,2,3]", "[]")) == "inputs[0].shape is [1,2,3], expected [N,2,2]");
  CHECK(complaint(with("[2,2]", "[]")) == "inputs[0].shape is [2,2], expected [N,2,2]");
  CHECK(complaint(with("[0,2,2]", "[]")) == "inputs[0].shape[0] is 0, expected 1 to 4");
  CHECK(complaint(with("[5,2,2]", "[]")) == "inputs[0].shape[0] is 5, expected 1 to 4");
  CHECK(complaint(with("[1.5,2,2]", "[]")) == "inputs[0].shape must hold integers of at least 0");
  CHECK(complaint(with("[1,2,2]", "[1,2,3]")) ==
        "inputs[0].data has 3 values, but its shape says 4");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4,5]")) ==
        "inputs[0].data has 5 values, but its shape says 4");
  CHECK(complaint(with("[1,2,2]", "[1,2,\"3\",4]")) ==
        "inputs[0].data[2] must be a number, not a string");
  CHECK(complaint(with("[1,2,2]", "[1,2,1e39,4]")) == "inputs[0].data[2] is out of range for FP32");
  CHECK(complaint(with("[1,2]", "[1,2.5]", "INT32"), integers) ==
        "inputs[0].data[1] must be an integer of 32 bits");
  CHECK(complaint(with("[1,2]", "[1,3000000000]", "INT32"), integers) ==
        "inputs[0].data[1] must be an integer of 32 bits");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("parameters":{"timeout":0},)")) ==
        "parameters.timeout is 0, expected 1 to 3600000000 microseconds");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("parameters":{"timeout":"1"},)")) ==
        "parameters.timeout must be an integer of microseconds, not a string");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("outputs":[{"name":"q"}],)")) ==
        "output 'q' is unknown to model 'm'");
  std::string deep = "1";
  for (int i = 0; i < 40; ++i) deep = "[" + deep + "]";
  CHECK(complaint(with("[1,2,2]", deep)) == "inputs[0].data is nested too deeply");
}
TEST_CASE("an answer gives the rows in shortest form, and no number that JSON lacks") {
  const float values[] = {0.1F, -2.0F, 3.5e-8F, 4.0F};
  const infer_request r{.id = "a\"b", .rows = 2, .data = {}, .timeout = {}};
  const auto body = write_infer_response(floats, r, std::as_bytes(std::span{values}));
  CHECK(
      std::get<std::string>(body) ==
      R"({"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[0.1,-2,3.5e-08,4]}]})");
  const float bad[] = {NAN, 0};
  CHECK(std::get<protocol_error>(write_infer_response(floats, r, std::as_bytes(std::span{bad})))
            .status == 500);
  CHECK(
      std::get<std::string>(write_infer_response(integers, r, {})) ==
      R"({"model_name":"m","model_version":"1","id":"a\"b","parameters":{"emulated":true},"outputs":[]})");
}
TEST_CASE("errors are JSON whatever they quote") {
  CHECK(error_body("a \"b\"\n\x01") == R"({"error":"a \"b\"\n\u0001"})");
}
}  // namespace
}  // namespace cohort::serve
