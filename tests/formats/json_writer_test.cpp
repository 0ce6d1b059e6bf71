// SPDX-License-Identifier: Apache-2.0
#include <formats/json_writer.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

namespace cohort::formats::json_writer_test {
namespace {

TEST_CASE("containers are laid out in lines or on one line") {
  json_writer out;
  out.begin_object().field("a", 1).key("b").begin_array();
  out.begin_object(json_writer::layout::line).field("x", "t").key("y").begin_array();
  out.value(true).null().end_array().end_object();
  out.end_array().key("empty").begin_array().end_array().end_object();
  CHECK(out.take() ==
        "{\n  \"a\": 1,\n  \"b\": [\n    {\"x\": \"t\", \"y\": [true, null]}\n  ],\n"
        "  \"empty\": []\n}\n");
}

TEST_CASE("numbers are the shortest that read back, and what JSON lacks is null") {
  json_writer out;
  out.begin_array(json_writer::layout::line)
      .value(0.1)
      .value(2.25)
      .value(5000.0)
      .value(1.0 / 3)
      .value(1e300)
      .value(std::numeric_limits<std::uint64_t>::max())
      .value(std::int64_t{-3})
      .value(std::numeric_limits<double>::infinity())
      .end_array();
  CHECK(out.take() ==
        "[0.1, 2.25, 5000, 0.3333333333333333, 1e+300, 18446744073709551615, -3, null]\n");
}

}  // namespace
}  // namespace cohort::formats::json_writer_test
