// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/prefix_index.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <deque>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::cluster::prefix_index_test {
namespace {
using blocks = std::vector<std::uint64_t>;

std::vector<std::uint32_t> matches(const prefix_index& x, const blocks& b) {
  std::vector<std::uint32_t> out;
  x.match(b, out);
  return out;
}

TEST_CASE("the leading blocks that an endpoint was sent count, and no others") {
  prefix_index x;
  x.add_endpoint(10);
  x.add_endpoint(10);
  x.note(endpoint_id{0}, blocks{1, 2, 3});
  x.note(endpoint_id{1}, blocks{1, 5});
  CHECK(matches(x, {1, 2, 3, 4}) == std::vector<std::uint32_t>{3, 1});
  CHECK(matches(x, {1, 5}) == std::vector<std::uint32_t>{1, 2});
  CHECK(matches(x, {2, 3}) == std::vector<std::uint32_t>{2, 0});
  CHECK(matches(x, {9}) == std::vector<std::uint32_t>{0, 0});
  CHECK(matches(x, {}) == std::vector<std::uint32_t>{0, 0});
}
TEST_CASE("an endpoint keeps the blocks that it used last, as many as its capacity") {
  prefix_index x;
  x.add_endpoint(3);
  x.add_endpoint(0);
  const endpoint_id e{0};
  x.note(e, blocks{1, 2, 3});
  x.note(e, blocks{4});  // 1 makes room.
  CHECK(matches(x, {1}) == std::vector<std::uint32_t>{0, 0});
  CHECK(matches(x, {2}) == std::vector<std::uint32_t>{1, 0});
  x.note(e, blocks{2});  // Used again: no room is taken.
  x.note(e, blocks{5});
  x.note(e, blocks{6});
  CHECK(matches(x, {3}) == std::vector<std::uint32_t>{0, 0});
  CHECK(matches(x, {2}) == std::vector<std::uint32_t>{1, 0});
  x.note(endpoint_id{1}, blocks{2});
  CHECK(matches(x, {2}) == std::vector<std::uint32_t>{1, 0});
  x.forget(e);
  CHECK(matches(x, {2}) == std::vector<std::uint32_t>{0, 0});
  x.note(e, blocks{2});
  CHECK(matches(x, {2}) == std::vector<std::uint32_t>{1, 0});
}
TEST_CASE("of a block at many endpoints the places used last are known") {
  prefix_index x;
  for (std::uint32_t i = 0; i < 10; ++i) x.add_endpoint(100);
  for (std::uint32_t i = 0; i < 10; ++i) {
    for (std::uint64_t n = 0; n < i; ++n) x.note(endpoint_id{i}, blocks{1000 * i + n});
    x.note(endpoint_id{i}, blocks{7});
  }
  std::uint32_t known = 0;
  for (const std::uint32_t m : matches(x, {7})) known += m;
  CHECK(known == prefix_index::most_places);
  CHECK(matches(x, {7})[9] == 1);
}
TEST_CASE("memory is bounded by what endpoints keep") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    prefix_index x;
    for (int i = 0; i < 3; ++i) x.add_endpoint(50);
    for (std::uint64_t i = 0; i < 20000; ++i) {
      x.note(endpoint_id{random.below(3U)}, blocks{i, i + 1, random.below(std::uint64_t{40})});
      CHECK(x.known_blocks() <= 2 * 150 + 1024 + 3);
    }
  }
}

}  // namespace
}  // namespace cohort::cluster::prefix_index_test
