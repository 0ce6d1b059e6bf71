// SPDX-License-Identifier: Apache-2.0
#include <formats/json_reader.hpp>

#include <doctest/doctest.h>

#include <string>
#include <support/complaint.hpp>

namespace cohort::formats::json_reader_test {
namespace {

const std::string file = "f.json";

test::gist complaint(std::string_view text) {
  return test::gist_of<input_error>([&] { (void)parse_json(file, text); });
}

TEST_CASE("values are read with the place they stand at") {
  const json_value v = parse_json(file, R"({"a": [1, {"b c": "x"}], "d": -2.5e0, "e": true})");
  const json_cursor root{file, v};
  const auto items = root.require("a", "").items("items");
  REQUIRE(items.size() == 2);
  CHECK(items[0].integer({}) == 1);
  CHECK(items[1].require("b c", "").string() == "x");
  CHECK(items[1].require("b c", "").place() == "f.json: $.a[1][\"b c\"]");
  CHECK(root.require("d", "").number({.low = -3}) == -2.5);
  CHECK_FALSE(root.find("z").has_value());
}

TEST_CASE("what is not JSON is refused with line and column") {
  CHECK(complaint("").find("f.json: line 1, column 1 ($)") == 0);
  CHECK(complaint("{\"a\": 1,\n  x}").find("f.json: line 2, column 3 ($.a): ") == 0);
  CHECK(complaint("[1, NaN]").find("f.json: line 1, column 5 ($[1]): ") == 0);
  CHECK(complaint("{\"a\": 1} x").find("f.json: line 1, column 10 ($): ") == 0);
  CHECK(complaint("[1,]") == "f.json: line 1, column 4 ($[1]): bad value");
  CHECK(complaint("[\"\xC3(\"]").ends_with(": bad value"));
  CHECK(complaint("[1") == "f.json: line 1 ... ends");
}

TEST_CASE("a number that overflows and a repeated field are refused where they stand") {
  CHECK(complaint(R"({"a": [1e999]})") == "f.json: $.a[0]: bad value");
  CHECK(complaint(R"({"a": {"b": 1, "b": 2}})") == "f.json: $.a.b: repeated");
}

TEST_CASE("nesting beyond the limit is refused") {
  CHECK(complaint(std::string(64, '[') + std::string(64, ']')) == "no error");
  CHECK(complaint(std::string(65, '[')) == "f.json: ... at most 64 deep");
}

TEST_CASE("a value of the wrong kind is refused with what it is") {
  const json_value v = parse_json(file, R"({"n": null, "t": "x", "f": 1.5, "w": 8.0, "o": {},
                                            "a": [1], "neg": -1, "e": ""})");
  const json_cursor root{file, v};
  const auto at = [&](const char* name) { return root.require(name, ""); };
  CHECK(test::gist_of<input_error>([&] { (void)at("n").number({}); }) == "f.json: $.n: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)at("t").number({}); }) == "f.json: $.t: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)at("a").number({}); }) == "f.json: $.a: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)at("neg").number({}); }) ==
        "f.json: $.neg: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)at("f").integer({.low = 1, .high = 9}); }) ==
        "f.json: $.f: bad value");
  CHECK(at("w").integer({.low = 1, .high = 9}) == 8);
  CHECK_THROWS_AS((void)at("neg").integer({}), input_error);
  CHECK(test::gist_of<input_error>([&] { (void)at("f").string(); }) == "f.json: $.f: bad value");
  CHECK_THROWS_AS((void)at("e").string(), input_error);
  CHECK(test::gist_of<input_error>([&] { (void)at("t").choice({"y", "z"}); }) ==
        "f.json: $.t: bad value");
  CHECK(test::gist_of<input_error>([&] { (void)at("o").items("an array"); }) ==
        "f.json: $.o: bad value");
  CHECK_THROWS_AS((void)at("o").members("members"), input_error);
  CHECK(test::gist_of<input_error>([&] { at("t").only({"y"}); }) == "f.json: $.t: bad value");
  CHECK(test::gist_of<input_error>([&] { root.only({"n", "t"}); }) == "f.json: $.f: unknown field");
  CHECK(test::gist_of<input_error>([&] { (void)root.require("gone", "a number"); }) ==
        "f.json: $.gone: missing");
}

}  // namespace
}  // namespace cohort::formats::json_reader_test
