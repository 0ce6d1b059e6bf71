// SPDX-License-Identifier: Apache-2.0
#include <formats/text.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <formats/csv.hpp>
#include <formats/json_reader.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <support/complaint.hpp>

namespace cohort::formats::text_test {
namespace {

TEST_CASE("a number is finite, decimal and the whole of its text") {
  CHECK(to_number("1.5e3") == 1500.0);
  CHECK(to_number("-2") == -2.0);
  for (const char* bad :
       {"", "nan", "inf", "-inf", "1e999", "1x", " 1", "1 ", "+1", "0x10", "1,5"}) {
    INFO(std::string{bad});
    CHECK_FALSE(to_number(bad).has_value());
  }
}

TEST_CASE("an integer has no sign and no fraction") {
  CHECK(to_integer("18446744073709551615") == 18446744073709551615U);
  for (const char* bad : {"", "-1", "+1", "1.5", "1.0", "1e3", "18446744073709551616"}) {
    INFO(std::string{bad});
    CHECK_FALSE(to_integer(bad).has_value());
  }
}

TEST_CASE("a range says what it allows") {
  CHECK(number_range{.low = 0}.describe() == "a number of at least 0");
  CHECK(number_range{.low = 0, .above_low = true}.describe() == "a number above 0");
  CHECK(number_range{.low = 0, .high = 1}.describe() == "a number from 0 to 1");
  CHECK(number_range{.low = 0, .high = 1, .above_low = true}.describe() ==
        "a number above 0 and at most 1");
  CHECK(integer_range{.low = 1, .high = 9}.describe() == "an integer from 1 to 9");
  CHECK(integer_range{}.describe() == "an integer of at least 0");
}

TEST_CASE("an option outside its range is refused by name") {
  CHECK(parse_number("--x", "0.5", {.low = 0, .high = 1}) == 0.5);
  for (const char* bad : {"-5", "1.5", "many", ""}) {
    CAPTURE(bad);
    CHECK(test::gist_of<input_error>(
              [&] { (void)parse_number("--x", bad, {.low = 0, .high = 1}); }) == "--x: bad value");
  }
  for (const char* bad : {"1.5", "5", "-1", "x"}) {
    CAPTURE(bad);
    CHECK(test::gist_of<input_error>(
              [&] { (void)parse_integer("--n", bad, {.low = 1, .high = 4}); }) == "--n: bad value");
  }
}

// The one place that knows the sentences. Every other test asks for field and kind, by test::gist.
TEST_CASE("an error is one sentence that names the place, the value and what was expected") {
  const auto json = [](std::string_view text, auto read) {
    return [text, read] {
      const std::string file = "f.json";
      const json_value value = parse_json(file, text);
      read(json_cursor{file, value});
    };
  };
  const auto csv = [](std::string_view text) {
    return [text] {
      csv_reader r{"f.csv", text, {"a"}};
      while (r.next()) (void)parse_number(r.place(0), r.field(0), {.low = 1, .high = 9});
    };
  };
  const struct {
    std::function<void()> call;
    const char* sentence;
    const char* gist;
  } rows[] = {
      {[] { (void)parse_number("--x", "-5", {.low = 0, .high = 1}); },
       "--x: got -5, expected a number from 0 to 1", "--x: bad value"},
      {[] { (void)parse_number("--x", "many", {.low = 0, .above_low = true}); },
       "--x: got \"many\", expected a number above 0", "--x: bad value"},
      {[] { (void)parse_integer("--n", "0", {.low = 1, .high = 4}); },
       "--n: got 0, expected an integer from 1 to 4", "--n: bad value"},
      {[] { fail("--to", "\"x\"", "a or b"); }, "--to: got \"x\", expected a or b",
       "--to: bad value"},
      {json("{\"n\": -1}", [](const json_cursor& c) { (void)c.find("n")->number({.low = 0}); }),
       "f.json: $.n: got -1, expected a number of at least 0", "f.json: $.n: bad value"},
      {json("{}", [](const json_cursor& c) { (void)c.require("n", "a number"); }),
       "f.json: $.n: missing: expected a number", "f.json: $.n: missing"},
      {json("{\"m\": 1}", [](const json_cursor& c) { c.only({"n", "o"}); }),
       "f.json: $.m: unknown field: expected n, o", "f.json: $.m: unknown field"},
      {json("{\"n\": 1, \"n\": 2}", [](const json_cursor&) {}),
       "f.json: $.n: repeated: expected each field once", "f.json: $.n: repeated"},
      {csv("b\n1\n"), "f.csv: line 1, a: missing: expected a column", "f.csv: line 1, a: missing"},
      {csv("a,a\n1,2\n"), "f.csv: line 1, a: repeated: expected one column of that name",
       "f.csv: line 1, a: repeated"},
      {csv("a\n0\n"), "f.csv: line 2, a: got 0, expected a number from 1 to 9",
       "f.csv: line 2, a: bad value"},
      {[] { (void)read_file("/no/such"); }, "/no/such: cannot be read: No such file or directory",
       "/no/such: cannot be read: No such file or directory"}};
  for (const auto& r : rows) {
    CHECK_THROWS_WITH_AS(r.call(), r.sentence, input_error);
    CHECK(test::gist_of<input_error>(r.call) == r.gist);
  }
}

TEST_CASE("quoting leaves one line of JSON, whatever the text") {
  CHECK(quote("a\"b\\c\n\t\x01") == "\"a\\\"b\\\\c\\n\\t\\u0001\"");
  CHECK(quote("\xC3\xA4") == "\"\xC3\xA4\"");
  CHECK(quote("\xFFz") == "\"\xEF\xBF\xBDz\"");
  CHECK(quote_short(std::string(100, 'x')) == '"' + std::string(60, 'x') + "\"...");
  CHECK(quote_short(std::string(59, 'x') + "\xC3\xA4z") == '"' + std::string(59, 'x') + "\"...");
}

TEST_CASE("only well-formed UTF-8 is UTF-8") {
  for (const char* good : {"", "plain", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}) {
    INFO(std::string{good});
    CHECK(is_utf8(good));
  }
  for (const char* bad : {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xE2\x82", "\xFF"}) {
    INFO(std::string{bad});
    CHECK_FALSE(is_utf8(bad));
  }
}

TEST_CASE("writing a file replaces it whole and leaves nothing beside it") {
  const std::string path = "scratch.text_test.out";
  write_file(path, "first, and longer");
  write_file(path, "second");
  CHECK(read_file(path) == "second");
  CHECK_FALSE(std::filesystem::exists(path + ".part"));
  std::filesystem::remove(path);
  write_file("/dev/null", "x");  // Not replaced by a file.
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_THROWS_WITH_AS(write_file("/dev/full", "x"),
                       doctest::Contains("/dev/full: cannot be written"), input_error);
}
TEST_CASE("a regular file is read whole, and a pipe is not waited for") {
  const std::string path = "formats_text_test.regular";
  std::filesystem::remove(path);
  std::string text(100'000, 'x');
  text += "end";
  write_file(path, text);
  CHECK(read_regular_file(path) == text);
  write_file(path, "");
  CHECK(read_regular_file(path).empty());
  std::filesystem::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS((void)read_regular_file(path), doctest::Contains("it is not a regular file"),
                       input_error);
  std::filesystem::remove(path);
}
TEST_CASE("files that cannot be read or written are named") {
  CHECK_THROWS_WITH_AS((void)read_file("no/such/file"),
                       "no/such/file: cannot be read: No such file or directory", input_error);
  CHECK_THROWS_WITH_AS((void)read_file("/"), "/: cannot be read: Is a directory", input_error);
  CHECK_THROWS_WITH_AS((void)read_regular_file("no/such/file"),
                       "no/such/file: cannot be read: No such file or directory", input_error);
  CHECK_THROWS_WITH_AS((void)read_regular_file("/dev/null"),
                       "/dev/null: is refused: it is not a regular file", input_error);
  CHECK_THROWS_WITH_AS(write_file("no/such/file", "x"),
                       "no/such/file: cannot be written: No such file or directory", input_error);
}

}  // namespace
}  // namespace cohort::formats::text_test
