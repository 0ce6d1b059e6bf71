// SPDX-License-Identifier: Apache-2.0
#include <drawings/table.hpp>

#include <doctest/doctest.h>

#include <limits>

namespace cohort::drawings::table_test {
namespace {

TEST_CASE("columns are as wide as their widest cell in characters") {
  table t{{"name", "n"}};
  t.add({"\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", "1"});
  t.add({"b\n", "1234"});
  CHECK(t.text() ==
        "name      n\n-----  ----\n\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4     1\nb\\n    1234\n");
}

TEST_CASE("numbers read well") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1 000");
  CHECK(grouped(12345678) == "12 345 678");
  CHECK(counted(1, "device") == "1 device");
  CHECK(counted(2, "device") == "2 devices");
  CHECK(decimal(5346.0, 1) == "5346");
  CHECK(decimal(826.44, 1) == "826.4");
  CHECK(fixed(2.5, 3) == "2.500");
  CHECK(fixed(std::numeric_limits<double>::infinity(), 2) == "never");
  CHECK(percent(0.0123) == "1.23 %");
}

}  // namespace
}  // namespace cohort::drawings::table_test
