// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/infer_request.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <support/complaint.hpp>
#include <utility>
#include <vector>

namespace cohort::serve::infer_request_test {
namespace {
using namespace std::chrono_literals;
using runtime::data_type;

const model_meta floats{
    "m", "test", {{"x", data_type::f32, {2, 2}}}, {{"y", data_type::f32, {2}}}, 20ms};
const model_meta integers{"m", "test", {{"x", data_type::i32, {2}}}, {}, 20ms};
/// Two inputs of any length up to 5, and one that has none.
const model_meta encoder{"m",
                         "test",
                         {{"ids", data_type::i64, {-1}, runtime::value_range{0, 99}},
                          {"mask", data_type::boolean, {-1}},
                          {"bias", data_type::f16, {2}}},
                         {{"y", data_type::f32, {-1, 2}}, {"h", data_type::f16, {1}}},
                         20ms,
                         5};

template <class T>
std::vector<T> values(std::span<const std::byte> bytes) {
  std::vector<T> v(bytes.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), bytes.data(), bytes.size());
  return v;
}
template <class T>
std::string binary(const std::vector<T>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

/// A body and what its header says of it.
struct sent {
  std::string json;
  std::string tail;

  [[nodiscard]] auto parse(const model_meta& m) const {
    static infer_parser p{4};
    static std::vector<std::string> bodies;  // What is parsed are views of them.
    bodies.push_back(json + tail);
    return p.parse(bodies.back(), m, std::to_string(json.size()));
  }
};

test::gist complaint(const std::string& body, const model_meta& m = floats) {
  infer_parser p{4};
  const auto r = p.parse(body, m);
  const auto* e = std::get_if<protocol_error>(&r);
  if (e != nullptr) CHECK(e->status == 400);
  return test::gist{e == nullptr ? "" : e->message};
}
test::gist complaint(const sent& body, const model_meta& m) {
  const auto r = body.parse(m);
  const auto* e = std::get_if<protocol_error>(&r);
  return test::gist{e == nullptr ? "" : e->message};
}
std::string with(const std::string& shape, const std::string& data,
                 const std::string& datatype = "FP32", const std::string& extra = "") {
  return "{" + extra + R"("inputs":[{"name":"x","datatype":")" + datatype + R"(","shape":)" +
         shape + R"(,"data":)" + data + "}]}";
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
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
  CHECK(r->size == 1);
  CHECK(r->timeout == duration{2500us});
  CHECK(r->outputs == std::vector<wanted_output>{{0, false}});
  CHECK(values<float>(r->inputs[0]) == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8.5F});
  CHECK(values<float>(r->row(0, 1)) == std::vector<float>{5, 6, 7, 8.5F});
  auto nested = p.parse(with("[2,2,2]", "[[[1,2],[3,4]],[[5,6],[7,8.5]]]"), floats);
  REQUIRE(std::get_if<infer_request>(&nested) != nullptr);
  CHECK(values<float>(std::get<infer_request>(nested).inputs[0]) == values<float>(r->inputs[0]));
  CHECK_FALSE(std::get<infer_request>(nested).timeout.has_value());
}
TEST_CASE("every mistake is answered by one line that names it") {
  CHECK(complaint("") == "... body ... not valid JSON");
  CHECK(complaint("{\"inputs\":[") == "... body ... not valid JSON");
  CHECK(complaint("[]") == "... body ... object ... array");
  CHECK(complaint("{}") == "inputs ... missing");
  CHECK(complaint(R"({"inputs":{}})") == "inputs ... array ... object");
  CHECK(complaint(R"({"inputs":[]})") == "inputs ... 0 tensors ... 1 ('x')");
  CHECK(complaint(R"({"inputs":[1]})") == "inputs[0] ... object ... number");
  CHECK(complaint(R"({"inputs":[],"inputs":[]})") == "inputs ... given twice");
  CHECK(complaint(R"({"inputs":[{"datatype":"FP32"}]})") == "inputs[0].name ... missing");
  CHECK(complaint(R"({"inputs":[{"name":"z"}]})") == "input 'z' ... unknown ... model 'm' ... 'x'");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "INT32")) ==
        "inputs[0].datatype ... INT32 ... FP32");
  CHECK(complaint(with("[1,2,2]", "[\"1\"]", "BYTES")) == "inputs[0].datatype ... BYTES ... FP32");
  CHECK(complaint(with("[1,2,3]", "[]")) == "inputs[0].shape ... [1,2,3] ... [N,2,2]");
  CHECK(complaint(with("[2,2]", "[]")) == "inputs[0].shape ... [2,2] ... [N,2,2]");
  CHECK(complaint(with("[0,2,2]", "[]")) == "inputs[0].shape[0] ... 0 ... 1 to 4");
  CHECK(complaint(with("[5,2,2]", "[]")) == "inputs[0].shape[0] ... 5 ... 1 to 4");
  CHECK(complaint(with("[9223372036854775807,2,2]", "[]")) ==
        "inputs[0].shape[0] ... 9223372036854775807 ... 1 to 4");
  CHECK(complaint(with("[1.5,2,2]", "[]")) == "inputs[0].shape ... integers ... at least 0");
  CHECK(complaint(with("[1,-2,2]", "[]")) == "inputs[0].shape ... integers ... at least 0");
  CHECK(complaint(with("[1,2,2]", "[1,2,3]")) == "inputs[0].data ... 3 ... 4");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4,5]")) == "inputs[0].data ... 5 ... 4");
  CHECK(complaint(with("[1,2,2]", "[1,2,\"3\",4]")) == "inputs[0].data[2] ... number ... string");
  CHECK(complaint(with("[1,2,2]", "[1,2,1e39,4]")) ==
        "inputs[0].data[2] ... out of range ... FP32");
  CHECK(complaint(with("[1,2]", "[1,2.5]", "INT32"), integers) ==
        "inputs[0].data[1] ... integer ... -2147483648 to 2147483647");
  CHECK(complaint(with("[1,2]", "[1,3000000000]", "INT32"), integers) ==
        "inputs[0].data[1] ... integer ... -2147483648 to 2147483647");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("parameters":{"timeout":-1},)")) ==
        "parameters.timeout ... -1 ... 0 to 3600000000 microseconds");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("parameters":{"timeout":"1"},)")) ==
        "parameters.timeout ... integer ... microseconds ... string");
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", R"("outputs":[{"name":"q"}],)")) ==
        "output 'q' ... unknown ... model 'm'");
  std::string deep = "1";
  for (int i = 0; i < 40; ++i) deep = "[" + deep + "]";
  CHECK(complaint(with("[1,2,2]", deep)) == "inputs[0].data ... nested too deeply");
}
TEST_CASE(
    "what the protocol knows and is not done is refused by its name, other parameters are not "
    "looked at") {
  const auto asks = [](const std::string& parameter) {
    return complaint(
        with("[1,2,2]", "[1,2,3,4]", "FP32", "\"parameters\":{\"" + parameter + "\":1},"));
  };
  CHECK(asks("triton_final_response") == "parameters.triton_final_response ... not supported");
  for (const std::string p :
       {"my_own", "priority", "sequence_id", "sequence_start", "sequence_end"}) {
    CHECK(asks(p).empty());
  }
  const std::string good =
      with("[1,2,2]", "[1,2,3,4]", "FP32", R"("outputs":[{"name":"y","parameters":{}}],)");
  CHECK(complaint(good).empty());
  for (const std::string p : {"shared_memory_region", "shared_memory_offset"}) {
    CHECK(complaint(replaced(good, "{}", "{\"" + p + "\":1}")) ==
          "outputs[0].parameters." + p + " is not supported");
  }
  CHECK(complaint(
            replaced(good, "\"shape\"", R"("parameters":{"shared_memory_region":"r"},"shape")")) ==
        "inputs[0].parameters.shared_memory_region ... not supported");
  CHECK(complaint(replaced(good, "{}", R"({"my_own":[]})")).empty());
}
TEST_CASE("each datatype has its own limits in JSON, and its own bytes") {
  const auto model = [](data_type t) { return model_meta{"m", "test", {{"x", t, {2}}}, {}, 20ms}; };
  struct limits {
    data_type type;
    std::string least, most;   // Both allowed.
    std::string below, above;  // Neither.
    std::string bytes;         // Of least and most, little-endian.
  };
  using namespace std::string_literals;
  const limits all[] = {
      {data_type::i8, "-128", "127", "-129", "128", "\x80\x7f"s},
      {data_type::u8, "0", "255", "-1", "256", "\0\xff"s},
      {data_type::i16, "-32768", "32767", "-32769", "32768", "\0\x80\xff\x7f"s},
      {data_type::u16, "0", "65535", "-1", "65536", "\0\0\xff\xff"s},
      {data_type::i32, "-2147483648", "2147483647", "-2147483649", "2147483648",
       "\0\0\0\x80\xff\xff\xff\x7f"s},
      {data_type::u32, "0", "4294967295", "-1", "4294967296", "\0\0\0\0\xff\xff\xff\xff"s},
      {data_type::i64, "-9223372036854775808", "9223372036854775807", "-1e19",
       "9223372036854775808", "\0\0\0\0\0\0\0\x80\xff\xff\xff\xff\xff\xff\xff\x7f"s},
      {data_type::u64, "0", "18446744073709551615", "-1", "1e20",
       "\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"s},
      {data_type::boolean, "false", "true", "0", "\"true\"", "\0\1"s},
      {data_type::f64, "0", "-2.5", "null", "true", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\xc0"s},
      {data_type::f32, "0", "-2.5", "-1e39", "[true]", "\0\0\0\0\0\0\x20\xc0"s}};
  infer_parser p{4};
  for (const limits& l : all) {
    const std::string name{name_of(l.type)};
    CAPTURE(name);
    const model_meta m = model(l.type);
    const auto good = p.parse(with("[1,2]", "[" + l.least + "," + l.most + "]", name), m);
    REQUIRE(std::get_if<infer_request>(&good) != nullptr);
    CHECK(binary(values<char>(std::get<infer_request>(good).inputs[0])) == l.bytes);
    for (const std::string& bad : {l.below, l.above}) {
      CAPTURE(bad);
      CHECK(complaint(with("[1,2]", "[" + l.least + "," + bad + "]", name), m)
                .starts_with("inputs[0].data[1] "));
    }
  }
  for (const data_type t : {data_type::f16, data_type::bf16}) {
    const std::string name{name_of(t)};
    CHECK(complaint(with("[1,2]", "[1,2]", name), model(t)) ==
          "inputs[0].data: " + name + " ... no form ... JSON ... binary data");
  }
}

/// In another order than the model's: `ids` as JSON, the others as binary data. 2 rows of length 3.
const sent mixed{
    R"({"inputs":[{"name":"mask","datatype":"BOOL","shape":[2,3],"parameters":{"binary_data_size":6}},)"
    R"({"name":"ids","datatype":"INT64","shape":[2,3],"data":[[7,8,9],[0,1,99]]},)"
    R"({"name":"bias","datatype":"FP16","shape":[2,2],"parameters":{"binary_data_size":8}}],)"
    R"("outputs":[{"name":"h","parameters":{"binary_data":true}},{"name":"y"}]})",
    std::string("\1\1\0\1\1\1", 6) + "abcdefgh"};

TEST_CASE("tensors come in any order, as JSON and as binary data, of one length") {
  const auto parsed = mixed.parse(encoder);
  const auto* r = std::get_if<infer_request>(&parsed);
  REQUIRE(r != nullptr);
  CHECK(r->rows == 2);
  CHECK(r->size == 3);
  CHECK(values<std::int64_t>(r->inputs[0]) == std::vector<std::int64_t>{7, 8, 9, 0, 1, 99});
  CHECK(values<std::int64_t>(r->row(0, 1)) == std::vector<std::int64_t>{0, 1, 99});
  CHECK(values<char>(r->inputs[1]) == std::vector<char>{1, 1, 0, 1, 1, 1});
  CHECK(values<char>(r->row(2, 1)) == std::vector<char>{'e', 'f', 'g', 'h'});
  CHECK(r->outputs == std::vector<wanted_output>{{1, true}, {0, false}});
}
TEST_CASE("binary data is not copied") {
  infer_parser p{4};
  const std::string json =
      R"({"inputs":[{"name":"x","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}}]})";
  const std::string body = json + "abcdefgh";
  const auto parsed = p.parse(body, integers, std::to_string(json.size()));
  REQUIRE(std::get_if<infer_request>(&parsed) != nullptr);
  const infer_request& r = std::get<infer_request>(parsed);
  CHECK(static_cast<const void*>(r.inputs[0].data()) == body.data() + json.size());
  CHECK(r.parsed == nullptr);
}
TEST_CASE("tensors that disagree are refused, and ids out of their range") {
  const auto with_json = [](const std::string& from, const std::string& to) {
    return complaint(sent{replaced(mixed.json, from, to), mixed.tail}, encoder);
  };
  CHECK(with_json("[2,3],\"data\"", "[2,4],\"data\"") == "inputs[1].shape[1] ... 4 ... 3");
  CHECK(with_json("[2,3],\"data\"", "[1,3],\"data\"") == "inputs[1].shape[0] ... 1 ... 2");
  CHECK(with_json("[2,3],\"data\"", "[2,3,1],\"data\"") ==
        "inputs[1].shape ... [2,3,1] ... [N,1..5]");
  CHECK(with_json("[2,3]", "[2,6]") == "inputs[0].shape[1] ... 6 ... 1 to 5");
  CHECK(with_json("[2,3]", "[2,0]") == "inputs[0].shape[1] ... 0 ... 1 to 5");
  CHECK(with_json("\"ids\"", "\"mask\"") == "input 'mask' ... given twice");
  CHECK(with_json("\"ids\"", "\"id\"") ==
        "input 'id' ... unknown ... model 'm' ... 'ids', 'mask', 'bias'");
  CHECK(with_json("[0,1,99]", "[0,1,100]") ==
        "inputs[1].data[5] ... 100 ... 0 to 99 ... input 'ids'");
  CHECK(with_json("[0,1,99]", "[-1,1,99]") ==
        "inputs[1].data[3] ... -1 ... 0 to 99 ... input 'ids'");
  CHECK(complaint(R"({"inputs":[]})", encoder) ==
        "inputs ... 0 tensors ... 3 ('ids', 'mask', 'bias')");
  CHECK(with_json("\"name\":\"y\"", "\"name\":\"h\"") == "output 'h' ... twice");
  CHECK(with_json("true", "false") == "output 'h' ... FP16 ... JSON ... \"binary_data\": true");
}
TEST_CASE("binary data that does not fit is refused, and the field named") {
  const auto of = [](const std::string& json, const std::string& tail) {
    return complaint(sent{json, tail}, encoder);
  };
  CHECK(of(replaced(mixed.json, ":6", ":5"), mixed.tail) ==
        "inputs[0].parameters.binary_data_size ... 5 ... 6");
  CHECK(of(replaced(mixed.json, ":6", ":18446744073709551615"), mixed.tail) ==
        "inputs[0].parameters.binary_data_size ... 18446744073709551615 ... 6");
  CHECK(of(replaced(mixed.json, ":6", ":-6"), mixed.tail) ==
        "inputs[0].parameters.binary_data_size ... number ... bytes ... number");
  CHECK(of(mixed.json, mixed.tail.substr(0, 13)) == "inputs[2]: 7 bytes ... binary data ... 8");
  CHECK(of(mixed.json, mixed.tail + "ij") == "2 bytes ... binary data ... inputs");
  CHECK(of(replaced(mixed.json, ":6}", ":6},\"data\":[]"), mixed.tail) ==
        "inputs[0].data ... inputs[0].parameters.binary_data_size ... both");
  CHECK(of(replaced(mixed.json, ",\"parameters\":{\"binary_data_size\":6}", ""), mixed.tail) ==
        "inputs[0].data ... missing");
  CHECK(of(mixed.json, std::string("\1\1\0\1\2\1", 6) + "abcdefgh") ==
        "inputs[0].data[4] ... 2 ... 0 to 1 ... input 'mask'");
  const model_meta ids{
      "m", "test", {{"x", data_type::u8, {2}, runtime::value_range{1, 9}}}, {}, 1s};
  const std::string json =
      R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,2],"parameters":{"binary_data_size":2}}]})";
  CHECK(complaint(sent{json, "\x09\x01"}, ids).empty());
  CHECK(complaint(sent{json, "\x09\x0a"}, ids) ==
        "inputs[0].data[1] ... 10 ... 1 to 9 ... input 'x'");
  infer_parser p{4};
  const auto at = [&](const std::string& length) {
    const auto r = p.parse("{}", floats, length);
    return test::gist{std::get<protocol_error>(r).message};
  };
  for (const std::string bad : {"3", "-1", "x", "2 ", "1e0", "99999999999999999999999"}) {
    CHECK(at(bad) ==
          "Inference-Header-Content-Length ... " + bad + " ... 1 to 2 ... length ... body");
  }
  CHECK(at("0") == "Inference-Header-Content-Length ... 0: raw binary ... not supported");
  CHECK(at("1") == "... body ... not valid JSON");
}

runtime::row_layout layout(const model_meta& m) { return {m.outputs, m.max_size}; }
infer_request asked(std::uint32_t rows, std::vector<wanted_output> outputs) {
  infer_request r;
  r.id = "a\"b";
  r.rows = rows;
  r.outputs = std::move(outputs);
  return r;
}

TEST_CASE("an answer gives the rows in shortest form, and no number that JSON lacks") {
  const float rows[] = {0.1F, -2.0F, 3.5e-8F, 4.0F};
  const infer_request r = asked(2, {{0, false}});
  const auto body = write_infer_response(floats, layout(floats), r, std::as_bytes(std::span{rows}));
  CHECK(
      std::get<infer_answer>(body).body ==
      R"({"model_name":"m","model_version":"1","id":"a\"b","outputs":[{"name":"y","datatype":"FP32","shape":[2,2],"data":[0.1,-2,3.5e-08,4]}]})");
  CHECK_FALSE(std::get<infer_answer>(body).json_length);
  const float bad[] = {NAN, 0, 0, 0};
  const auto refused =
      write_infer_response(floats, layout(floats), r, std::as_bytes(std::span{bad}));
  CHECK(std::get<protocol_error>(refused).status == 500);
  CHECK(
      std::get<infer_answer>(write_infer_response(integers, layout(integers), asked(2, {}), {}))
          .body ==
      R"({"model_name":"m","model_version":"1","id":"a\"b","parameters":{"emulated":true},"outputs":[]})");
}
TEST_CASE(
    "an answer has the outputs that were asked for, of the request's length, also as binary data") {
  // A row: 5 times 2 floats, of which a request of size 2 has 4, and 1 half behind them.
  REQUIRE(layout(encoder).bytes() == 48);
  std::vector<std::byte> rows(96);
  for (std::size_t i = 0; i < 2; ++i) {
    const float y[] = {1.0F + static_cast<float>(i), 2, 3, 4, 99, 99};
    std::memcpy(rows.data() + 48 * i, y, sizeof(y));
    std::memcpy(rows.data() + 48 * i + 40, i == 0 ? "pq" : "rs", 2);
  }
  infer_request r = asked(2, {{1, true}, {0, false}});
  r.size = 2;
  auto answer = write_infer_response(encoder, layout(encoder), r, rows);
  const std::string json =
      R"({"model_name":"m","model_version":"1","id":"a\"b","outputs":[)"
      R"({"name":"h","datatype":"FP16","shape":[2,1],"parameters":{"binary_data_size":4}},)"
      R"({"name":"y","datatype":"FP32","shape":[2,2,2],"data":[1,2,3,4,2,2,3,4]}]})";
  CHECK(std::get<infer_answer>(answer).body == json + "pqrs");
  CHECK(std::get<infer_answer>(answer).json_length == json.size());
  r.outputs = {{0, true}, {1, true}};
  answer = write_infer_response(encoder, layout(encoder), r, rows);
  const infer_answer& both = std::get<infer_answer>(answer);
  CHECK(both.body.substr(*both.json_length) ==
        binary(std::vector<float>{1, 2, 3, 4, 2, 2, 3, 4}) + "pqrs");
  r.outputs = {{1, true}};
  answer = write_infer_response(encoder, layout(encoder), r, rows);
  CHECK(std::get<infer_answer>(answer).body.ends_with(":4}}]}pqrs"));
}
TEST_CASE("binary_data_output makes all outputs binary but those that say otherwise") {
  const auto outputs = [](const std::string& more) {
    infer_parser p{4};
    const auto r = p.parse(with("[1,2,2]", "[1,2,3,4]", "FP32", more), floats);
    REQUIRE(std::get_if<infer_request>(&r) != nullptr);
    return std::get<infer_request>(r).outputs;
  };
  const std::string all = R"("parameters":{"binary_data_output":true},)";
  CHECK(outputs(all) == std::vector<wanted_output>{{0, true}});
  CHECK(outputs(all + R"("outputs":[],)") == std::vector<wanted_output>{{0, true}});
  CHECK(outputs(all + R"("outputs":[{"name":"y"}],)") == std::vector<wanted_output>{{0, true}});
  CHECK(outputs(all + R"("outputs":[{"name":"y","parameters":{"binary_data":false}}],)") ==
        std::vector<wanted_output>{{0, false}});
}
TEST_CASE("values of every datatype are written as they are read") {
  const std::pair<data_type, std::string> all[] = {
      {data_type::i8, "-128,127"},
      {data_type::u8, "0,255"},
      {data_type::i16, "-32768,32767"},
      {data_type::u16, "0,65535"},
      {data_type::i32, "-2147483648,7"},
      {data_type::u32, "4294967295,0"},
      {data_type::i64, "-9223372036854775808,9223372036854775807"},
      {data_type::u64, "18446744073709551615,0"},
      {data_type::boolean, "true,false"},
      {data_type::f64, "0.1,-1e+300"},
      {data_type::f32, "0.1,3e+38"}};
  infer_parser p{4};
  for (const auto& [type, text] : all) {
    CAPTURE(text);
    const model_meta m{"m", "test", {{"x", type, {2}}}, {{"x", type, {2}}}, 20ms};
    const auto r = p.parse(with("[1,2]", "[" + text + "]", std::string{name_of(type)}), m);
    REQUIRE(std::get_if<infer_request>(&r) != nullptr);
    const infer_request& in = std::get<infer_request>(r);
    const auto out = write_infer_response(m, layout(m), in, in.inputs[0]);
    CHECK(std::get<infer_answer>(out).body.ends_with("\"data\":[" + text + "]}]}"));
  }
}
TEST_CASE("of a ranked output the largest values of each row are given, with their places") {
  model_meta m{"m",
               "test",
               {{"x", data_type::f32, {1}}},
               {{"y", data_type::f32, {2, 2}}, {"n", data_type::i8, {3}}},
               20ms};
  const auto ask = [&](const std::string& rest) {
    infer_parser p{4};
    const std::string body =
        R"({"inputs":[{"name":"x","datatype":"FP32","shape":[2,1],"data":[1,2]}],"outputs":[)" +
        rest + "]}";
    auto r = p.parse(body, m);
    REQUIRE(std::holds_alternative<infer_request>(r));
    const runtime::row_layout layout{m.outputs, 1};
    std::vector<std::byte> rows(2 * layout.bytes());
    const float y[2][4] = {{0.25F, -1, 2, 2}, {NAN, -INFINITY, -3, -2.5F}};
    const std::int8_t n[2][3] = {{-1, 5, 0}, {7, 7, 7}};
    for (std::size_t i = 0; i < 2; ++i) {
      std::memcpy(rows.data() + i * layout.bytes(), y[i], sizeof(y[i]));
      std::memcpy(rows.data() + i * layout.bytes() + layout.offset(1), n[i], sizeof(n[i]));
    }
    auto a = write_infer_response(m, layout, std::get<infer_request>(r), rows);
    REQUIRE(std::holds_alternative<infer_answer>(a));
    return std::get<infer_answer>(a);
  };
  const std::string two = R"({"name":"y","parameters":{"classification":2}})";
  CHECK(ask(two).body ==
        R"({"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"BYTES",)"
        R"("shape":[2,2],"data":["2.000000:2","2.000000:3","-2.500000:3","-3.000000:2"]}]})");
  m.labels = {{"zero", "one", "\"tw\to\\"}};  // Fewer than there are places, and of one output.
  CHECK(
      ask(two).body.find(
          R"("data":["2.000000:2:\"tw\to\\","2.000000:3","-2.500000:3","-3.000000:2:\"tw\to\\"])") !=
      std::string::npos);
  m.labels.clear();
  // More than there are; beside one that has all; and as binary data, each with its length before.
  const infer_answer all =
      ask(R"({"name":"n","parameters":{"classification":9}},)"
          R"({"name":"y","parameters":{"classification":1,"binary_data":true}})");
  CHECK(all.body.starts_with(
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"n","datatype":"BYTES",)"
      R"("shape":[2,3],"data":["5:1","0:2","-1:0","7:0","7:1","7:2"]},{"name":"y","datatype":)"
      R"("BYTES","shape":[2,1],"parameters":{"binary_data_size":29}}]})"));
  REQUIRE(all.json_length);
  CHECK(all.body.substr(*all.json_length) ==
        std::string{"\x0a\0\0\0", 4} + "2.000000:2" + std::string{"\x0b\0\0\0", 4} + "-2.500000:3");
  CHECK(ask(R"({"name":"n","parameters":{"classification":0}})").body.find("[-1,5,0,7,7,7]") !=
        std::string::npos);
  CHECK(complaint(with("[2,2,2]", "[1,2,3,4,5,6,7,8]", "FP32",
                       R"("outputs":[{"name":"y","parameters":{"classification":1001}}],)")) ==
        "output 'y': classification ... 1001 ... 0 to 1000 ... 2 rows");
  infer_parser p{4};
  const auto half = p.parse(
      with("[1,2,2]", "[1,2,3,4]", "FP32",
           R"("outputs":[{"name":"y","parameters":{"classification":1,"binary_data":true}}],)"),
      {"m", "test", floats.inputs, {{"y", data_type::f16, {2}}}, 20ms});
  REQUIRE(std::holds_alternative<protocol_error>(half));
  CHECK(test::gist(std::get<protocol_error>(half).message) ==
        "output 'y' ... FP16 ... no classification");
}

TEST_CASE("of an open model each tensor has the shape that it has") {
  const model_meta m{.name = "m",
                     .platform = "test",
                     .inputs = {{"x", data_type::u8, {-1, 2, -1}}, {"n", data_type::i32, {}}},
                     .outputs = {{"y", data_type::u8, {-1, -1}}, {"z", data_type::f32, {}}},
                     .batches = false,
                     .is_open = true,
                     .runs_alone = true};
  const auto body = [](const std::string& shape, const std::string& data) {
    return R"({"inputs":[{"name":"x","datatype":"UINT8","shape":)" + shape + R"(,"data":)" + data +
           R"(},{"name":"n","datatype":"INT32","shape":[],"data":[7]}]})";
  };
  infer_parser p{4};
  const std::string sent = body("[1,2,3]", "[1,2,3,4,5,6]");
  auto r = p.parse(sent, m);
  REQUIRE(std::holds_alternative<infer_request>(r));
  const auto& q = std::get<infer_request>(r);
  CHECK(q.rows == 1);
  CHECK(q.shapes == std::vector<std::vector<std::int64_t>>{{1, 2, 3}, {}});
  CHECK(values<std::uint8_t>(q.inputs[0]) == std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6});
  CHECK(values<std::int32_t>(q.inputs[1]) == std::vector<std::int32_t>{7});
  const std::uint8_t y[] = {8, 9};
  std::vector<runtime::shaped_tensor> out{{{2, 1}, std::as_bytes(std::span{y}), {}},
                                          {{0, 4}, {}, {}}};
  infer_writer w{m, q, out};
  CHECK(w.value_bytes() == 2);
  const auto a = write_infer_response(w);
  REQUIRE(std::holds_alternative<infer_answer>(a));
  CHECK(std::get<infer_answer>(a).body ==
        R"({"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"UINT8",)"
        R"("shape":[2,1],"data":[8,9]},{"name":"z","datatype":"FP32","shape":[0,4],"data":[]}]})");
  // Ranked: as binary data beside one of no bytes; and one whose first dimension is no number of
  // rows.
  infer_request asked;
  asked.rows = 1;
  asked.outputs = {{0, true, 1}, {1, true, 0}};
  infer_writer ranked{m, asked, out};
  const auto b = write_infer_response(ranked);
  REQUIRE(std::holds_alternative<infer_answer>(b));
  REQUIRE(std::get<infer_answer>(b).json_length);
  CHECK(std::get<infer_answer>(b).body.find(R"("datatype":"BYTES","shape":[1],)") !=
        std::string::npos);
  CHECK(std::get<infer_answer>(b).body.substr(*std::get<infer_answer>(b).json_length) ==
        std::string{"\x03\0\0\0", 4} + "9:1");
  asked.outputs = {{1, true, 0}};
  infer_writer none{m, asked, out};
  const auto nothing = write_infer_response(none);
  REQUIRE(std::holds_alternative<infer_answer>(nothing));
  CHECK(std::get<infer_answer>(nothing).json_length == std::get<infer_answer>(nothing).body.size());
  asked.outputs = {{0, true, 1}};
  model_meta with_rows = m;
  with_rows.batches = true;
  asked.rows = 3;  // Of y there are two.
  infer_writer other{with_rows, asked, out};
  const auto d = write_infer_response(other);
  REQUIRE(std::holds_alternative<infer_answer>(d));
  CHECK(std::get<infer_answer>(d).body.find(R"("datatype":"BYTES","shape":[1],)") !=
        std::string::npos);
  const std::vector<std::byte> long_row(1'000'001);
  out[0] = {{1, 1'000'001}, long_row, {}};
  infer_writer far{m, asked, out};
  const auto e = write_infer_response(far);
  REQUIRE(std::holds_alternative<protocol_error>(e));
  CHECK(test::gist(std::get<protocol_error>(e).message) ==
        "output 'y' ... 1000001 ... classification ... 1000000");
  CHECK(complaint(body("[0,2,9]", "[]"), m) == "inputs[0].shape[0] ... 0 ... 1 to 2147483647");
  CHECK(complaint(body("[1,3,1]", "[1,2,3]"), m) == "inputs[0].shape ... [1,3,1] ... [any,2,any]");
  CHECK(complaint(body("[1,2]", "[1,2]"), m) == "inputs[0].shape ... [1,2] ... [any,2,any]");
  CHECK(complaint(body("[1048576,2,1048576]", "[1]"), m) ==
        "inputs[0].shape ... [1048576,2,1048576] ... at most 2^40 elements");
  CHECK(complaint(body("[1,2,4000000000000]", "[1]"), m) ==
        "inputs[0].shape[2] ... 4000000000000 ... 1 to 2147483647");
  // With rows, which the limits bound as of any model.
  model_meta rows = m;
  rows.inputs = {{"x", data_type::u8, {-1, -1}}};
  rows.batches = true;
  rows.max_rows = 2;
  const auto two = p.parse(with("[2,1,3]", "[1,2,3,4,5,6]", "UINT8"), rows);
  REQUIRE(std::holds_alternative<infer_request>(two));
  CHECK(std::get<infer_request>(two).rows == 2);
  CHECK(std::get<infer_request>(two).shapes[0] == std::vector<std::int64_t>{2, 1, 3});
  CHECK(complaint(with("[3,1,1]", "[1,2,3]", "UINT8"), rows) ==
        "inputs[0].shape[0] ... 3 ... 1 to 2 ... rows ... model 'm'");
}

TEST_CASE("an answer in pieces is the same, however small they are") {
  std::vector<std::byte> rows(96);
  for (std::size_t i = 0; i < 2; ++i) {
    const float y[] = {1.0F + static_cast<float>(i), 2, 3, 4, 99, 99};
    std::memcpy(rows.data() + 48 * i, y, sizeof(y));
    std::memcpy(rows.data() + 48 * i + 40, i == 0 ? "pq" : "rs", 2);
  }
  const std::vector<std::vector<wanted_output>> all{
      {{1, true}, {0, false}}, {{0, true}, {1, true}}, {{0, false}}};
  for (const auto& outputs : all) {
    infer_request r = asked(2, outputs);
    r.size = 2;
    const runtime::row_layout lies = layout(encoder);
    const infer_answer whole = std::get<infer_answer>(write_infer_response(encoder, lies, r, rows));
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      infer_writer w{encoder, lies, r, rows};
      while (!w.check()) continue;
      CHECK(w.json_length() == whole.json_length);
      CHECK(w.size() == (whole.json_length ? std::optional{whole.body.size()} : std::nullopt));
      std::string body;
      while (w.append_to(body, bytes)) continue;
      CHECK(body == whole.body);
    }
  }
}
TEST_CASE("a large answer is looked at and written in steps, and its last value may be wrong") {
  // 3 rows of 1.5 M floats: 18 MB, of which a step looks at 4 MiB.
  const std::int64_t columns = 1'500'000;
  const model_meta m{
      "m", "test", {{"x", data_type::f32, {1}}}, {{"y", data_type::f32, {columns}}}, 20ms};
  const runtime::row_layout lies = layout(m);
  std::vector<float> y(3 * static_cast<std::size_t>(columns), 0.5F);
  const infer_request r = asked(3, {{0, false}});
  infer_writer w{m, lies, r, std::as_bytes(std::span{y})};
  CHECK(w.value_bytes() == 18'000'000);
  int steps = 1;
  while (!w.check()) ++steps;
  CHECK(steps == 5);
  std::string piece;
  CHECK(w.append_to(piece, 65536));
  CHECK(piece.size() >= 65536);
  CHECK(piece.size() < 2 * 65536);
  y.back() = NAN;
  infer_writer bad{m, lies, r, std::as_bytes(std::span{y})};
  while (!bad.check()) continue;
  REQUIRE(bad.error());
  CHECK(test::gist(bad.error()->message) == "output 'y' ... 1499999 ... row 2 ... not finite");
}
TEST_CASE("rows are bounded by the server's limit and by that of the model") {
  model_meta m = floats;
  m.max_rows = 3;  // Of 4 that the server allows.
  CHECK(complaint(with("[3,2,2]", "[1,2,3,4,1,2,3,4,1,2,3,4]", "FP32", ""), m).empty());
  CHECK(complaint(with("[4,2,2]", "[1]", "FP32", ""), m) ==
        "inputs[0].shape[0] ... 4 ... 1 to 3 ... rows ... model 'm'");
  m.max_rows = 5;  // The model's limit is the only one, where it has one.
  CHECK(complaint(with("[5,2,2]", "[1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4,1,2,3,4]", "FP32", ""), m)
            .empty());
  CHECK(complaint(with("[6,2,2]", "[1]", "FP32", ""), m) ==
        "inputs[0].shape[0] ... 6 ... 1 to 5 ... rows ... model 'm'");
}
TEST_CASE("of a model with sequences each request says which one, and where it is in it") {
  model_meta m = floats;
  m.sequences = sequence_ids{};
  const auto place = [&](const std::string& p) {
    infer_parser parser{4};
    const std::string body = with("[1,2,2]", "[1,2,3,4]", "FP32", "\"parameters\":{" + p + "},");
    auto r = parser.parse(body, m);
    REQUIRE(std::holds_alternative<infer_request>(r));
    return *std::get<infer_request>(r).sequence;
  };
  CHECK(place("\"sequence_id\":7") == sequence_place{.number = 7});
  CHECK(place("\"sequence_id\":18446744073709551615,\"sequence_start\":true").starts);
  CHECK(place("\"sequence_id\":\"a b\",\"sequence_start\":false,\"sequence_end\":true") ==
        sequence_place{.text = "a b", .ends = true});
  const auto said = [&](const std::string& p, const std::string& rows = "[1,2,2]",
                        const std::string& data = "[1,2,3,4]") {
    return complaint(with(rows, data, "FP32", "\"parameters\":{" + p + "},"), m);
  };
  const std::string ids = "... 1 to 18446744073709551615 ... text ... 1 to 256 bytes";
  CHECK(said("") == "parameters.sequence_id ... missing: model 'm' ... sequences, " + ids);
  CHECK(said("\"sequence_id\":\"\"") == "parameters.sequence_id ... missing");
  CHECK(said("\"sequence_id\":\"" + std::string(257, 'a') + "\"") ==
        "parameters.sequence_id ... 257 bytes, " + ids);
  for (const char* bad : {"0", "-1", "1.5", "true", "[]"}) {
    CAPTURE(bad);
    CHECK(said(std::string{"\"sequence_id\":"} + bad) ==
          "parameters.sequence_id ... no id ... sequence, " + ids);
  }
  CHECK(said("\"sequence_id\":1,\"sequence_start\":1") == "parameters.sequence_start ...");
  CHECK(said("\"sequence_id\":1", "[2,2,2]", "[1,2,3,4,5,6,7,8]") ==
        "inputs ... 2 rows ... 1: ... sequence");
  m.sequences = sequence_ids{.takes_text = false, .most = 99};
  CHECK(said("\"sequence_id\":100") == "parameters.sequence_id ... no id ... sequence ... 1 to 99");
  CHECK(said("\"sequence_id\":\"a\"") ==
        "parameters.sequence_id ... no id ... sequence ... 1 to 99");
  // Of others it means nothing.
  CHECK(complaint(with("[1,2,2]", "[1,2,3,4]", "FP32", "\"parameters\":{\"sequence_id\":[]},"))
            .empty());
}

TEST_CASE("errors are JSON whatever they quote") {
  CHECK(error_body("a \"b\"\n\x01") == R"({"error":"a \"b\"\n\u0001"})");
}
/// A model of strings, and a number.
const model_meta texts{.name = "m",
                       .platform = "test",
                       .inputs = {{"x", data_type::bytes, {-1, 2}}, {"n", data_type::i32, {}}},
                       .outputs = {{"y", data_type::bytes, {-1}}, {"z", data_type::f32, {}}},
                       .batches = false,
                       .is_open = true,
                       .runs_alone = true};
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
std::string strings_body(const std::string& shape, const std::string& more,
                         const std::string& rest = "") {
  return R"({"inputs":[{"name":"x","datatype":"BYTES","shape":)" + shape + more +
         R"(},{"name":"n","datatype":"INT32","shape":[],"data":[7]}])" + rest + "}";
}
sent binary_strings(const std::string& shape, const std::string& bytes) {
  return {strings_body(
              shape, ",\"parameters\":{\"binary_data_size\":" + std::to_string(bytes.size()) + "}"),
          bytes};
}

TEST_CASE("strings are read from JSON and from binary data") {
  const std::string nul{"c\0d", 3};
  infer_parser p{4};
  for (const char* data :
       {R"(["a","","c\u0000d","\u00fc\n\"\\"])", R"([["a",""],["c\u0000d","\u00fc\n\"\\"]])"}) {
    const std::string body = strings_body("[2,2]", std::string{",\"data\":"} + data);
    const auto r = p.parse(body, texts);
    REQUIRE(std::holds_alternative<infer_request>(r));
    const auto& q = std::get<infer_request>(r);
    CHECK(q.shapes[0] == std::vector<std::int64_t>{2, 2});
    CHECK(binary(values<char>(q.inputs[0])) == encoded({"a", "", nul, "\u00fc\n\"\\"}));
    CHECK(values<std::int32_t>(q.inputs[1]) == std::vector<std::int32_t>{7});
  }
  const sent body = binary_strings("[1,2]", encoded({nul, "\xff"}));
  const auto r = body.parse(texts);
  REQUIRE(std::holds_alternative<infer_request>(r));
  CHECK(binary(values<char>(std::get<infer_request>(r).inputs[0])) == body.tail);
}

TEST_CASE("strings that do not fit are named with their tensor") {
  const auto json = [](const std::string& shape, const std::string& data,
                       const std::string& rest = "") {
    return complaint(strings_body(shape, ",\"data\":" + data, rest), texts);
  };
  CHECK(json("[1,2]", R"(["a",1])") == "inputs[0].data[1] ... string ... number");
  CHECK(json("[1,2]", R"(["a",null])") == "inputs[0].data[1] ... string ... null");
  CHECK(json("[1,2]", R"(["a"])") == "inputs[0].data ... 1 ... 2");
  CHECK(json("[1,2]", R"(["a","b",["c"]])") == "inputs[0].data ... 3 ... 2");
  CHECK(json("[1,2]", "\"ab\"") == "inputs[0].data ... array ... string");
  CHECK(json("[1,2]", std::string(20, '[') + "\"a\"" + std::string(20, ']')) ==
        "inputs[0].data ... nested too deeply");
  CHECK(json("[524288,2]", R"(["a"])") == "inputs[0].data ... 1 ... 1048576");
  CHECK(json("[1,2]", R"(["a","b"])",
             R"(,"outputs":[{"name":"y","parameters":{"classification":1}}])") ==
        "output 'y' ... BYTES ... no classification");
  const auto tail = [](const std::string& bytes) {
    return complaint(binary_strings("[1,2]", bytes), texts);
  };
  CHECK(tail(encoded({"a", "b"})) == "");
  CHECK(tail(encoded({"a", ""}) + "xy") ==
        "inputs[0]: 2 bytes ... left over ... 2 strings ... 'x'");
  CHECK(tail(encoded({"a", "b", "c"})) == "inputs[0]: 5 bytes ... left over ... 2 strings ... 'x'");
  CHECK(tail(encoded({"a"})) == "inputs[0]: string 1 ... 'x' ... missing: 0 bytes ... 2 strings");
  CHECK(tail(encoded({"a"}) + std::string(3, '\0')) ==
        "inputs[0]: string 1 ... 'x' ... missing: 3 bytes ... 2 strings");
  for (const std::string& length : {std::string{"\4\0\0\0", 4}, std::string(4, '\xff')}) {
    CHECK(tail(encoded({"a"}) + length + "abc") ==
          "inputs[0]: string 1 ... 'x' ... longer ... 3 bytes");
  }
  CHECK(complaint(binary_strings("[549755813888,2]", encoded({"a"})), texts) ==
        "inputs[0].shape[0] ... 549755813888 ... 1 to 2147483647");
  sent early = binary_strings("[1,2]", encoded({"a", "b"}));
  early.tail.pop_back();
  CHECK(complaint(early, texts) == "inputs[0]: 9 bytes ... binary data ... 10");
}

TEST_CASE("strings are written as JSON, in pieces, and as binary data") {
  const std::string large = std::string(20'000, 'x') + "\u00e9\x01" + std::string(20'000, '"');
  const std::string bytes = encoded({"", "a\n", "\u65e5\u672c", large, ""});
  const float z = 1.5F;
  const std::vector<runtime::shaped_tensor> out{{{5}, std::as_bytes(std::span{bytes}), {}},
                                                {{}, std::as_bytes(std::span{&z, 1}), {}}};
  infer_request asked;
  asked.rows = 1;
  asked.outputs = {{0, false}, {1, false}};
  std::string quotes;
  for (int i = 0; i < 20'000; ++i) quotes += "\\\"";
  const std::string data = "[\"\",\"a\\n\",\"\u65e5\u672c\",\"" + std::string(20'000, 'x') +
                           "\u00e9\\u0001" + quotes + "\",\"\"]";
  const std::string head =
      R"({"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"BYTES",)"
      R"("shape":[5],)";
  {
    infer_writer w{texts, asked, out};
    while (!w.check()) continue;
    CHECK_FALSE(w.error());
    std::string body;
    int pieces = 1;
    while (w.append_to(body, 1000)) ++pieces;
    CHECK(pieces > 4);
    CHECK(body == head + "\"data\":" + data +
                      R"(},{"name":"z","datatype":"FP32","shape":[],"data":[1.5]}]})");
  }
  asked.outputs = {{0, true}, {1, false}};
  infer_writer second{texts, asked, out};
  const auto both = write_infer_response(second);
  REQUIRE(std::holds_alternative<infer_answer>(both));
  const auto& a = std::get<infer_answer>(both);
  CHECK(a.body.starts_with(
      head + "\"parameters\":{\"binary_data_size\":" + std::to_string(bytes.size()) + "}}"));
  CHECK(a.body.substr(*a.json_length) == bytes);
  asked.outputs = {{1, true}, {0, false}};
  infer_writer third{texts, asked, out};
  const auto other = write_infer_response(third);
  REQUIRE(std::holds_alternative<infer_answer>(other));
  CHECK(std::get<infer_answer>(other).body.find(data) != std::string::npos);
  CHECK(std::get<infer_answer>(other).body.size() ==
        *std::get<infer_answer>(other).json_length + 4);
}

TEST_CASE("a string that is not UTF-8 is refused as JSON, and sent as binary data") {
  const float z = 1.5F;
  for (const std::string& bad :
       {std::string{"\xff"}, std::string{"\xc3"}, std::string{"\xed\xa0\x80"}}) {
    const std::string bytes = encoded({"a", "", bad});
    const std::vector<runtime::shaped_tensor> out{{{3}, std::as_bytes(std::span{bytes}), {}},
                                                  {{}, std::as_bytes(std::span{&z, 1}), {}}};
    infer_request asked;
    asked.rows = 1;
    for (const bool is_other_binary : {false, true}) {
      asked.outputs = {{0, false}, {1, is_other_binary}};
      infer_writer w{texts, asked, out};
      const auto r = write_infer_response(w);
      REQUIRE(std::holds_alternative<protocol_error>(r));
      CHECK(std::get<protocol_error>(r).status == 400);
      CHECK(test::gist(std::get<protocol_error>(r).message) ==
            "output 'y': string 2 ... not UTF-8 ... JSON ... \"binary_data\": true");
    }
    asked.outputs = {{0, true}};
    infer_writer w{texts, asked, out};
    const auto r = write_infer_response(w);
    REQUIRE(std::holds_alternative<infer_answer>(r));
    CHECK(std::get<infer_answer>(r).body.ends_with(bytes));
  }
  // None at all.
  const std::vector<runtime::shaped_tensor> none{{{0}, {}, {}},
                                                 {{}, std::as_bytes(std::span{&z, 1}), {}}};
  infer_request asked;
  asked.rows = 1;
  asked.outputs = {{0, false}};
  infer_writer w{texts, asked, none};
  CHECK(std::get<infer_answer>(write_infer_response(w))
            .body.ends_with(R"("datatype":"BYTES","shape":[0],"data":[]}]})"));
}

}  // namespace
}  // namespace cohort::serve::infer_request_test
