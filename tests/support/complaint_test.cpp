// SPDX-License-Identifier: Apache-2.0
#include <support/complaint.hpp>

#include <doctest/doctest.h>

#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/key_ring.hpp>
#include <formats/csv.hpp>
#include <formats/json_reader.hpp>
#include <formats/naming.hpp>
#include <functional>
#include <registry/policy.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::complaint_test {
namespace {

using formats::input_error;

TEST_CASE("a gist without dots is place and kind, and a line of no kind stays as it is") {
  CHECK(test::gist{"f.json: $.n: got -1, expected a number"} == "f.json: $.n: bad value");
  CHECK(test::gist{"a: missing: expected b\nlast\n"} == "a: missing\nlast\n");
  CHECK_FALSE(test::gist{"f.json: $.n: got -1, expected a number"} == "f.json: $.m: bad value");
}

TEST_CASE("of a gist with dots the words are free, and place, value and range are not") {
  const test::gist g{"inputs[0].shape[0] is -1, expected 1 to 4"};
  for (const char* told : {"inputs[0].shape[0] ... -1 ... 1 to 4", "... -1 ...", "... 1 to 4",
                           "inputs[0].shape[0] ..."}) {
    CAPTURE(told);
    CHECK(g == told);
  }
  for (const char* other :
       {"inputs[0].shape[0] ... 1 ... 1 to 4", "inputs[0].shape[0] ... -1 ... 1 to 40",
        "inputs[0].shape[0] ... 1 to 4 ... -1", "inputs[0] ... -1", "inputs ... -1", "-1 ...",
        "shape[0] ... -1", "... -1.5", "inputs[0].shape[0] ... -1 ...\n", "\ninputs ..."}) {
    CAPTURE(other);
    CHECK_FALSE(g == other);
  }
  CHECK_FALSE(test::gist{"x is 1.5"} == "x ... 1");
  CHECK_FALSE(test::gist{"x is 15"} == "x ... 1");
}

TEST_CASE("a gist of several lines has as many, each in its place") {
  const test::gist g{std::vector<std::string>{"a: got 1, expected 2", "b: got 3, expected 4"}};
  CHECK(g == "a: ... 1 ... 2\nb: ... 3 ... 4");
  CHECK_FALSE(g == "b: ... 3 ... 4\na: ... 1 ... 2");
  CHECK_FALSE(g == "a: ... 1 ... 2");
  CHECK(g.has_line("... 3"));
  CHECK_FALSE(g.has_line("... 1 ... 4"));
  CHECK(test::gist{std::vector<std::string>{}} == "");
}

const serve::model_meta floats{
    "m", "test", {{"x", runtime::data_type::f32, {2}}}, {{"y", runtime::data_type::f32, {2}}}, {}};

/// Why a request of the Open Inference Protocol is refused.
std::string refusal(std::string_view body) {
  const auto r = serve::infer_parser{4}.parse(body, floats);
  return std::get<serve::protocol_error>(r).message;
}

// The one place that knows the sentences: one of each kind. Every other test asks for place, kind,
// value and range, by test::gist.
TEST_CASE("a message is one sentence that names the place, the value and what was expected") {
  const auto json = [](std::string_view text, auto read) {
    return [text, read] {
      const std::string file = "f.json";
      const formats::json_value value = formats::parse_json(file, text);
      read(formats::json_cursor{file, value});
    };
  };
  const auto csv = [](std::string_view text) {
    return [text] {
      formats::csv_reader r{"f.csv", text, {"a"}};
      while (r.next()) (void)formats::parse_number(r.place(0), r.field(0), {.low = 1, .high = 9});
    };
  };
  const auto policy = [](const char* name, const registry::policy_options& o) {
    return [name, o] { (void)registry::parse_policies(name, o); };
  };
  const struct {
    std::function<void()> call;
    const char* sentence;
    std::string gist;
  } rows[] = {
      // Out of range.
      {[] { (void)formats::parse_number("--x", "-5", {.low = 0, .high = 1}); },
       "--x: got -5, expected a number from 0 to 1", "--x: bad value"},
      {[] { (void)formats::parse_integer("--n", "0", {.low = 1, .high = 4}); },
       "--n: got 0, expected an integer from 1 to 4", "--n: bad value"},
      {json("{\"n\": -1}", [](const auto& c) { (void)c.find("n")->number({.low = 0}); }),
       "f.json: $.n: got -1, expected a number of at least 0", "f.json: $.n: bad value"},
      {csv("a\n0\n"), "f.csv: line 2, a: got 0, expected a number from 1 to 9",
       "f.csv: line 2, a: bad value"},
      // Of the wrong type.
      {[] { (void)formats::parse_number("--x", "many", {.low = 0, .above_low = true}); },
       "--x: got \"many\", expected a number above 0", "--x: bad value"},
      {json("{\"n\": []}", [](const auto& c) { (void)c.find("n")->string(); }),
       "f.json: $.n: got [], expected a text that is not empty", "f.json: $.n: bad value"},
      // None of the alternatives.
      {[] { formats::fail("--to", "\"x\"", "a or b"); }, "--to: got \"x\", expected a or b",
       "--to: bad value"},
      // Missing, unknown, given twice.
      {json("{}", [](const auto& c) { (void)c.require("n", "a number"); }),
       "f.json: $.n: missing: expected a number", "f.json: $.n: missing"},
      {json("{\"m\": 1}", [](const auto& c) { c.only({"n", "o"}); }),
       "f.json: $.m: unknown field: expected n, o", "f.json: $.m: unknown field"},
      {json("{\"n\": 1, \"n\": 2}", [](const auto&) {}),
       "f.json: $.n: repeated: expected each field once", "f.json: $.n: repeated"},
      {csv("b\n1\n"), "f.csv: line 1, a: missing: expected a column", "f.csv: line 1, a: missing"},
      {csv("a,a\n1,2\n"), "f.csv: line 1, a: repeated: expected one column of that name",
       "f.csv: line 1, a: repeated"},
      // Not together with another option.
      {policy("eager", {.tune = "on"}), "--tune: only with --policy adaptive",
       "--tune: only with --policy adaptive"},
      {policy("adaptive", {.gather = "head"}),
       "--gather: not with adaptive, which chooses its own rule",
       "--gather: not with adaptive ..."},
      // Too large.
      {[] { formats::naming("f.json", [] { throw std::bad_alloc{}; }); },
       "f.json: too large: expected what fits in the available memory", "f.json: too large ..."},
      // Files.
      {[] { (void)formats::read_file("/no/such"); },
       "/no/such: cannot be read: No such file or directory",
       "/no/such: cannot be read: No such file or directory"},
      {[] { (void)formats::read_regular_file("/dev/null"); },
       "/dev/null: is refused: it is not a regular file", "/dev/null: ... not a regular file"},
      {[] { formats::write_file("/no/such", "x"); },
       "/no/such: cannot be written: No such file or directory",
       "/no/such: cannot be written: No such file or directory"}};
  for (const auto& r : rows) {
    CHECK_THROWS_WITH_AS(r.call(), r.sentence, input_error);
    CHECK(test::gist_of<input_error>(r.call) == r.gist);
  }
}

TEST_CASE("a library refuses an argument by its field and its range") {
  CHECK_THROWS_WITH_AS(expects(false, "window: slack must be at least 0"),
                       "window: slack must be at least 0", config_error);
  CHECK_THROWS_WITH_AS((serve::key_ring{{"two words"}, "--keys", ""}),
                       "--api-key: got other characters, expected a key of 1 to 512 visible ASCII "
                       "characters",
                       config_error);
}

TEST_CASE("a request is refused by the path of its field") {
  const struct {
    const char* body;
    const char* sentence;
  } rows[] = {
      {"[", "the body is not valid JSON"},
      {"[]", "the body must be an object, not an array"},
      {R"({"inputs":[{"datatype":"FP32"}]})", "inputs[0].name is missing"},
      {R"({"inputs":[],"inputs":[]})", "inputs is given twice"},
      {R"({"inputs":[{"name":"z"}]})", "input 'z' is unknown to model 'm', expected 'x'"},
      {R"({"inputs":[]})", "inputs has 0 tensors, expected 1 ('x')"},
      {R"({"inputs":[{"name":"x","datatype":"INT8","shape":[1,2],"data":[1,2]}]})",
       "inputs[0].datatype is INT8, expected FP32"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[5,2],"data":[1,2]}]})",
       "inputs[0].shape[0] is 5, expected 1 to 4"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1]}]})",
       "inputs[0].data has 1 values, but its shape says 2"},
      {R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1,"2"]}]})",
       "inputs[0].data[1] must be a number, not a string"},
      {R"({"parameters":{"triton_final_response":true}})",
       "parameters.triton_final_response is not supported"},
  };
  for (const auto& r : rows) {
    CAPTURE(r.body);
    CHECK(refusal(r.body) == r.sentence);
  }
}

}  // namespace
}  // namespace cohort::complaint_test
