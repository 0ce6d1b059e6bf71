// SPDX-License-Identifier: Apache-2.0
#include <registry/name_table.hpp>

#include <doctest/doctest.h>

#include <string>
#include <support/complaint.hpp>

namespace cohort::registry::name_table_test {
namespace {

int twice(int x) { return 2 * x; }

constexpr name_table sums{
    row{"twice", "the number and itself", twice},
    row{"none", "nothing", [](int) { return 0; }},
    row{"plus", "with P more", [](int x) { return x + 10; },
        name_parameter{"P", {.low = 1, .high = 5}}},
};

TEST_CASE("a chosen name visits its own row") {
  const auto result = [](std::string_view text) {
    const choice c = sums.list().choose("--sum", text);
    return sums.visit(c.row, [](const auto& r) { return r.make(7); });
  };
  CHECK(result("twice") == 14);
  CHECK(result("none") == 0);
  CHECK(result("plus:2") == 17);
}

TEST_CASE("help and errors name every row") {
  const name_list names = sums.list();
  CHECK(names.names() == "twice, none or plus:P");
  CHECK(names.help() == "\n\ttwice\tthe number and itself\n\tnone\tnothing\n\tplus:P\twith P more");
  CHECK(test::gist_of<formats::input_error>([&] { (void)names.choose("--sum", "half"); }) ==
        "--sum: bad value");
  CHECK(test::gist_of<formats::input_error>([&] { (void)names.choose("--sum", "plus:6"); }) ==
        "--sum plus: bad value");
  for (const char* bad : {"", "plus", "plus:", "twice:", "twice:1", "Twice", "two"}) {
    INFO(std::string{bad});
    CHECK_THROWS_AS((void)names.choose("--sum", bad), formats::input_error);
  }
}

TEST_CASE("a list of names keeps its order, and what was written") {
  const auto all = sums.list().choose_all("--sum", "plus:1.5,twice");
  REQUIRE(all.size() == 2);
  CHECK(all[0].name == "plus:1.5");
  CHECK(all[0].parameter == 1.5);
  CHECK(all[0].row == 2);
  CHECK(all[1].row == 0);
  CHECK_THROWS_AS((void)sums.list().choose_all("--sum", "twice,"), formats::input_error);
}

TEST_CASE("the least that can be written of a name is a choice") {
  const name_list names = sums.list();
  for (const listed_name& n : names.all()) {
    CHECK(names.choose("--sum", n.sample()).row < 3);
  }
  CHECK(names.all()[2].sample() == "plus:1");
}

TEST_CASE("a row is found by the type of what it holds") {
  constexpr name_table kinds{row{"whole", "an integer", 1}, row{"part", "a fraction", 0.5}};
  CHECK(kinds.row_of<int>() == 0);
  CHECK(kinds.row_of<double>() == 1);
}

}  // namespace
}  // namespace cohort::registry::name_table_test
