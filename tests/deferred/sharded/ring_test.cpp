// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/ring.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <thread>

namespace cohort::deferred::ring_test {
namespace {

TEST_CASE("what is pushed is popped in order, and no more fits than there is room for") {
  ring<int> r{3};  // Rounded up to 4.
  int x = 0;
  CHECK(r.empty());
  CHECK_FALSE(r.pop(x));
  for (int turn = 0; turn < 5; ++turn) {
    for (int i = 0; i < 4; ++i) CHECK(r.push(i));
    CHECK_FALSE(r.push(4));
    CHECK_FALSE(r.empty());
    for (int i = 0; i < 4; ++i) {
      REQUIRE(r.pop(x));
      CHECK(x == i);
    }
    CHECK_FALSE(r.pop(x));
  }
}
TEST_CASE("one thread pops all that another pushes, in order") {
  ring<std::uint32_t> r{64};
  constexpr std::uint32_t last = 200000;
  std::thread writer{[&] {
    for (std::uint32_t i = 1; i <= last;) {
      if (r.push(i)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  }};
  bool in_order = true;
  for (std::uint32_t expected = 1, x = 0; expected <= last;) {
    if (r.pop(x)) {
      in_order &= x == expected++;
    } else {
      std::this_thread::yield();
    }
  }
  writer.join();
  CHECK(in_order);
}

}  // namespace
}  // namespace cohort::deferred::ring_test
