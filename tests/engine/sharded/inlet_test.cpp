// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/sharded/inlet.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

namespace cohort::engine::inlet_test {
namespace {

TEST_CASE("what is pushed is popped in order, and no more fits than there is room for") {
  inlet<int> in{3};  // Rounded up to 4.
  int x = 0;
  CHECK_FALSE(in.has_any());
  for (int turn = 0; turn < 5; ++turn) {
    for (int i = 0; i < 4; ++i) CHECK(in.push(i));
    CHECK_FALSE(in.push(4));
    CHECK(in.has_any());
    for (int i = 0; i < 4; ++i) {
      REQUIRE(in.pop(x));
      CHECK(x == i);
    }
    CHECK_FALSE(in.pop(x));
  }
}
TEST_CASE("of several threads all is popped, and what each pushed in its order") {
  constexpr std::uint32_t threads = 3;
  constexpr std::uint32_t each = 50000;
  struct item {
    std::uint32_t from = 0;
    std::uint32_t number = 0;
  };
  inlet<item> in{64};
  std::vector<std::thread> pushers;
  for (std::uint32_t t = 0; t < threads; ++t) {
    pushers.emplace_back([&in, t] {
      for (std::uint32_t i = 0; i < each;) {
        if (in.push({t, i})) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  std::array<std::uint32_t, threads> next{};
  bool in_order = true;
  for (std::uint32_t n = 0; n < threads * each;) {
    item x;
    if (in.pop(x)) {
      in_order &= x.number == next[x.from]++;
      ++n;
    } else {
      std::this_thread::yield();
    }
  }
  for (std::thread& t : pushers) t.join();
  CHECK(in_order);
  CHECK_FALSE(in.has_any());
}

}  // namespace
}  // namespace cohort::engine::inlet_test
