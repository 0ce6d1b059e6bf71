// SPDX-License-Identifier: Apache-2.0
#include <formats/text.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
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
  CHECK(test::gist_of<input_error>([] { write_file("/dev/full", "x"); }) ==
        "/dev/full: cannot be written ...");
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
  CHECK(test::gist_of<input_error>([&] { (void)read_regular_file(path); }) ==
        path + ": ... not a regular file");
  std::filesystem::remove(path);
}
TEST_CASE("files that cannot be read or written are named") {
  const std::string none = "no/such/file";
  const std::string lost = none + ": ... No such file or directory";
  CHECK(test::gist_of<input_error>([&] { (void)read_file(none); }) == lost);
  CHECK(test::gist_of<input_error>([] { (void)read_file("/"); }) == "/: ... Is a directory");
  CHECK(test::gist_of<input_error>([&] { (void)read_regular_file(none); }) == lost);
  CHECK(test::gist_of<input_error>([] { (void)read_regular_file("/dev/null"); }) ==
        "/dev/null: ... not a regular file");
  CHECK(test::gist_of<input_error>([&] { write_file(none, "x"); }) == lost);
}

}  // namespace
}  // namespace cohort::formats::text_test
