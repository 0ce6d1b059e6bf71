// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/latest_value.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <thread>

namespace cohort::deferred::latest_value_test {
namespace {

struct odd_size {
  std::array<std::uint32_t, 9> numbers{};
};

TEST_CASE("what was stored last is loaded") {
  latest_value<odd_size> v;
  CHECK(v.load().numbers[8] == 0);
  const std::uint64_t before = v.version();
  v.store({.numbers = {1, 2, 3, 4, 5, 6, 7, 8, 9}});
  v.store({.numbers = {9, 8, 7, 6, 5, 4, 3, 2, 1}});
  CHECK(v.version() != before);
  CHECK(v.load().numbers == std::array<std::uint32_t, 9>{9, 8, 7, 6, 5, 4, 3, 2, 1});
  CHECK(v.load().numbers[0] == 9);  // It stays.
}
TEST_CASE("a load while another thread stores is of one store, and never older than one before") {
  latest_value<odd_size> v;
  constexpr std::uint32_t last = 200000;
  std::thread writer{[&] {
    for (std::uint32_t i = 1; i <= last; ++i) {
      odd_size x;
      x.numbers.fill(i);
      v.store(x);
    }
  }};
  std::uint32_t seen = 0;
  bool is_whole = true;
  bool goes_back = false;
  while (seen != last) {
    const odd_size x = v.load();
    for (const std::uint32_t n : x.numbers) is_whole &= n == x.numbers[0];
    goes_back |= x.numbers[0] < seen;
    seen = x.numbers[0];
  }
  writer.join();
  CHECK(is_whole);
  CHECK_FALSE(goes_back);
}

}  // namespace
}  // namespace cohort::deferred::latest_value_test
