// SPDX-License-Identifier: Apache-2.0
// What needs no GPU: how shares become steps of multiprocessors.
#include <cohort/runtime/cuda/partition.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::runtime::cuda::partition_test {
namespace {

using steps = std::vector<unsigned>;

TEST_CASE("a share gets the nearest number of steps, at least one") {
  // 16 steps, as a device with 132 multiprocessors has: 15 of 8, and one of the 12 left over.
  const auto count = [](unsigned percent) {
    step_allocator a{16};
    return a.take(device_share{percent}).size();
  };
  CHECK(count(100) == 16);
  CHECK(count(50) == 8);
  CHECK(count(40) == 6);   // 6.4
  CHECK(count(60) == 10);  // 9.6
  CHECK(count(20) == 3);   // 3.2
  CHECK(count(1) == 1);    // 0.16
}
TEST_CASE("shares are disjoint as long as they fit") {
  step_allocator a{16};
  CHECK(a.take(device_share{50}) == steps{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(a.take(device_share{25}) == steps{8, 9, 10, 11});
  CHECK(a.take(device_share{25}) == steps{12, 13, 14, 15});
  // Full: the next goes where the fewest are, the lowest first.
  CHECK(a.take(device_share{13}) == steps{0, 1});
  CHECK(a.take(device_share{13}) == steps{2, 3});
}
TEST_CASE("rounding up never makes shares overlap that sum to the device") {
  // 7 steps: half is 3.5, nearest 4, but the second half has three left.
  step_allocator a{7};
  CHECK(a.take(device_share{50}) == steps{0, 1, 2, 3});
  CHECK(a.take(device_share{50}) == steps{4, 5, 6});
}
TEST_CASE("what is given back is taken again") {
  step_allocator a{4};
  const steps first = a.take(device_share{50});
  const steps second = a.take(device_share{50});
  a.give_back(first);
  CHECK(a.users(0) == 0);
  CHECK(a.users(2) == 1);
  CHECK(a.take(device_share{50}) == first);
  a.give_back(second);
  CHECK(a.take(device_share{25}) == steps{2});
}
TEST_CASE("what is retaken counts again, also where others came in between") {
  step_allocator a{2};
  const steps all = a.take(device_share{100});
  a.give_back(all);
  CHECK(a.take(device_share{50}) == steps{0});
  a.retake(all);
  CHECK(a.users(0) == 2);
  CHECK(a.users(1) == 1);
}
TEST_CASE("contexts are kept by their steps, and beyond the most the oldest goes") {
  kept_contexts<int> all{3};
  CHECK_FALSE(all.keep(steps{0, 1}, 1));
  CHECK_FALSE(all.keep(steps{2}, 2));
  CHECK_FALSE(all.keep(steps{0, 1}, 3));
  CHECK_FALSE(all.take(steps{0}));
  CHECK(all.keep(steps{3}, 4) == 1);
  CHECK(all.take(steps{0, 1}) == 3);
  CHECK_FALSE(all.take(steps{0, 1}));
  int sum = 0;
  all.each([&](int c) { sum += c; });
  CHECK(sum == 6);
}
TEST_CASE("without any step there is nothing to allocate") {
  CHECK(test::gist_of<config_error>([] { (void)step_allocator{0}; }) ==
        "step_allocator: steps ... at least 1");
}
TEST_CASE("for any shares that sum to at most the device, none overlap") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const unsigned all = 1 + static_cast<unsigned>(random.below(20U));
    step_allocator a{all};
    unsigned left = 100;
    // Shares below one step round up to it: those may overlap, and are left out here.
    const unsigned least = (100 + all - 1) / all;
    while (left >= least) {
      const unsigned share = least + static_cast<unsigned>(random.below(left - least + 1));
      const steps got = a.take(device_share{share});
      REQUIRE(got.size() >= all * share / 100);
      for (const unsigned i : got) REQUIRE(a.users(i) == 1);
      left -= share;
    }
  }
}
}  // namespace
}  // namespace cohort::runtime::cuda::partition_test
