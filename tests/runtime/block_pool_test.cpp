// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/detail/block_pool.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::runtime::detail::block_pool_test {
namespace {

TEST_CASE("a block pool gives the smallest block that fits") {
  block_pool p{640, 64};
  const auto a = p.take(100);  // 128 at 0.
  const auto b = p.take(64);   // 64 at 128.
  const auto c = p.take(300);  // 320 at 192.
  REQUIRE((a && b && c));
  CHECK(*a == 0);
  CHECK(*b == 128);
  CHECK(*c == 192);
  CHECK(p.free_bytes() == 128);
  p.give_back(*a, 100);
  // Free: 128 at 0 and 128 at 512. The first of equals is taken, then the smaller rest fits less.
  CHECK(p.take(1) == 0);
  CHECK(p.take(128) == 512);
  CHECK_FALSE(p.take(65));
  CHECK(p.largest_free() == 64);
}
TEST_CASE("neighbours that are free become one block, whatever the order") {
  for (unsigned order = 0; order < 6; ++order) {
    CAPTURE(order);
    block_pool p{192, 64};
    const std::size_t at[] = {*p.take(64), *p.take(64), *p.take(64)};
    std::vector<std::size_t> left{0, 1, 2};
    for (unsigned n = 3, rest = order; n > 0; rest /= n, --n) {
      const std::size_t i = rest % n;
      p.give_back(at[left[i]], 64);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
    CHECK(p.take(192) == 0);
  }
}
TEST_CASE("sizes beyond the pool, however large, are refused") {
  block_pool p{128, 64};
  CHECK_FALSE(p.take(129));
  CHECK_FALSE(p.take(std::numeric_limits<std::size_t>::max()));
  CHECK(p.take(128) == 0);
}
TEST_CASE("blocks never overlap, and all come back") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    block_pool p{4096, 64};
    struct block {
      std::size_t at, bytes;
    };
    std::vector<block> held;
    std::vector<int> owner(4096, -1);
    for (int step = 0; step < 500; ++step) {
      if (!held.empty() && random.one_in(2)) {
        const std::size_t i = random.below(held.size());
        for (std::size_t x = 0; x < held[i].bytes; ++x) owner[held[i].at + x] = -1;
        p.give_back(held[i].at, held[i].bytes);
        held[i] = held.back();
        held.pop_back();
        continue;
      }
      const std::size_t bytes = 1 + random.below(600U);
      const auto at = p.take(bytes);
      if (!at) continue;
      REQUIRE(*at % 64 == 0);
      REQUIRE(*at + bytes <= 4096);
      for (std::size_t x = 0; x < bytes; ++x) {
        REQUIRE(owner[*at + x] == -1);
        owner[*at + x] = step;
      }
      held.push_back({*at, bytes});
    }
    for (const block& b : held) p.give_back(b.at, b.bytes);
    CHECK(p.free_bytes() == 4096);
    CHECK(p.largest_free() == 4096);
  }
}
}  // namespace
}  // namespace cohort::runtime::detail::block_pool_test
