// SPDX-License-Identifier: Apache-2.0
#include <formats/csv.hpp>

#include <doctest/doctest.h>
#include <formats/text.hpp>
#include <support/complaint.hpp>

namespace cohort::formats::csv_test {
namespace {

TEST_CASE("columns are found by name, whatever their order, and others are ignored") {
  csv_reader rows{"f.csv", "x,b,a\n1,2,3\n4,5,6\n", {"a", "b"}};
  REQUIRE(rows.next());
  CHECK(rows.field(0) == "3");
  CHECK(rows.field(1) == "2");
  CHECK(rows.place(0) == "f.csv: line 2, a");
  REQUIRE(rows.next());
  CHECK(rows.field(0) == "6");
  CHECK_FALSE(rows.next());
}

TEST_CASE(
    "quotes, byte order mark, CRLF, spaces, blank lines and a missing last newline are read") {
  csv_reader rows{"f.csv",
                  "\xEF\xBB\xBF"
                  "a, b\r\n\"x, \"\"y\"\"\nz\" , 2 \r\n\r\n \n3,4",
                  {"a", "b"}};
  REQUIRE(rows.next());
  CHECK(rows.field(0) == "x, \"y\"\nz");
  CHECK(rows.field(1) == "2");
  REQUIRE(rows.next());
  CHECK(rows.field(1) == "4");
  CHECK(rows.place(1) == "f.csv: line 6, b");  // The quoted field held a line of its own.
  CHECK_FALSE(rows.next());
}

TEST_CASE("an empty last field counts") {
  csv_reader rows{"f.csv", "a,b\n1,\n", {"b"}};
  REQUIRE(rows.next());
  CHECK(rows.field(0).empty());
}

void read_all(std::string_view text) {
  csv_reader rows{"f.csv", text, {"a"}};
  while (rows.next()) {
  }
}

TEST_CASE("what is no such table is refused with its line") {
  CHECK(test::gist_of<input_error>([&] { read_all(""); }) == "f.csv: line 1: missing");
  CHECK(test::gist_of<input_error>([&] { read_all("b,c\n1,2\n"); }) == "f.csv: line 1, a: missing");
  CHECK(test::gist_of<input_error>([&] { read_all("a,a\n1,2\n"); }) ==
        "f.csv: line 1, a: repeated");
  CHECK(test::gist_of<input_error>([&] { read_all("a,b\n1,2\n3\n"); }) ==
        "f.csv: line 3: bad value");
  CHECK(test::gist_of<input_error>([&] { read_all("a\n\"x"); }) ==
        "f.csv: line 2: ... quote ... \"");
  CHECK(test::gist_of<input_error>([&] { read_all("a\n\"x\"y\n"); }) == "f.csv: line 2: bad value");
  CHECK(test::gist_of<input_error>([&] { read_all("a\n1\n\xC3(\n"); }) ==
        "f.csv: line 3: bad value");
}

TEST_CASE("an optional column may be missing, and is checked if it is there") {
  csv_reader with{"f", "b,a\n1,2\n", {"a"}, {"b", "c"}};
  CHECK(with.has(0));
  CHECK(with.has(1));
  CHECK_FALSE(with.has(2));
  REQUIRE(with.next());
  CHECK(with.field(0) == "2");
  CHECK(with.field(1) == "1");
  CHECK(test::gist_of<input_error>([&] { (csv_reader{"f", "a,b,b\n", {"a"}, {"b"}}); }) ==
        "f: line 1, b: repeated");
}

}  // namespace
}  // namespace cohort::formats::csv_test
