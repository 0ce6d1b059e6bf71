// SPDX-License-Identifier: Apache-2.0
#include <cohort/packing/detail/sort_stably.hpp>

#include <doctest/doctest.h>

#include <string>

namespace cohort::packing::detail::sort_stably_test {
namespace {

TEST_CASE("equal elements keep their order, whatever compares and projects them") {
  using pair = std::pair<int, std::string>;
  std::vector<pair> v{{2, "a"}, {1, "b"}, {2, "c"}, {1, "d"}, {3, "e"}};
  sort_stably(v, {}, &pair::first);
  CHECK(v == std::vector<pair>{{1, "b"}, {1, "d"}, {2, "a"}, {2, "c"}, {3, "e"}});
  sort_stably(v, std::ranges::greater{}, &pair::first);
  CHECK(v == std::vector<pair>{{3, "e"}, {2, "a"}, {2, "c"}, {1, "b"}, {1, "d"}});
  std::vector<int> none;
  sort_stably(none);
  CHECK(none.empty());
}
}  // namespace
}  // namespace cohort::packing::detail::sort_stably_test
