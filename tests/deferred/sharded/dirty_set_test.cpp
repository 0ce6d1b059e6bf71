// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/sharded/dirty_set.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace cohort::deferred::dirty_set_test {
namespace {

std::vector<std::uint32_t> taken(dirty_set& s) {
  std::vector<std::uint32_t> members;
  const bool any = s.take_all([&](std::uint32_t i) { members.push_back(i); });
  CHECK(any == !members.empty());
  return members;
}

TEST_CASE("members are taken once, whatever their words") {
  dirty_set s{10000};
  CHECK_FALSE(s.any());
  for (const std::uint32_t i : {0U, 63U, 64U, 4095U, 4096U, 9999U, 63U}) s.mark(i);
  CHECK(s.any());
  CHECK(taken(s) == std::vector<std::uint32_t>{0, 63, 64, 4095, 4096, 9999});
  CHECK_FALSE(s.any());
  CHECK(taken(s).empty());
  s.mark(64);
  CHECK(taken(s) == std::vector<std::uint32_t>{64});
}
TEST_CASE("what was written before a mark is seen when it is taken, and no mark is lost") {
  constexpr std::uint32_t numbers = 5000;
  constexpr std::uint64_t last = 200000;
  dirty_set s{numbers};
  const auto written = std::make_unique<std::atomic<std::uint64_t>[]>(numbers);
  std::thread writer{[&] {
    for (std::uint64_t i = 1; i <= last; ++i) {
      const auto at = static_cast<std::uint32_t>(i * 7919 % numbers);
      written[at].store(i, std::memory_order_relaxed);
      s.mark(at);
    }
  }};
  std::vector<std::uint64_t> seen(numbers, 0);
  const auto look = [&] {
    s.take_all([&](std::uint32_t i) { seen[i] = written[i].load(std::memory_order_relaxed); });
  };
  while (seen[last * 7919 % numbers] != last) look();
  writer.join();
  look();
  for (std::uint32_t i = 0; i < numbers; ++i) REQUIRE(seen[i] == written[i]);
}

}  // namespace
}  // namespace cohort::deferred::dirty_set_test
