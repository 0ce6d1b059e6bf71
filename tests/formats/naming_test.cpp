// SPDX-License-Identifier: Apache-2.0
#include <formats/naming.hpp>

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <support/complaint.hpp>

namespace cohort::formats::naming_test {
namespace {

TEST_CASE("what cannot be made from a file is said with the file's name") {
  CHECK(naming("p.json", [] { return 7; }) == 7);
  const auto bad = [] { throw config_error{"planner: too many stages"}; };
  CHECK_THROWS_WITH_AS(naming("p.json", bad), "p.json: planner: too many stages", input_error);
  const auto large = [] { throw std::bad_alloc{}; };
  CHECK(test::gist_of<input_error>([&] { naming("p.json", large); }) ==
        "p.json: too large: ... memory");
  // Other errors are not the file's.
  const auto other = [] { throw std::logic_error{"mine"}; };
  CHECK_THROWS_WITH_AS(naming("p.json", other), "mine", std::logic_error);
}
}  // namespace
}  // namespace cohort::formats::naming_test
