// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random choices for property tests, the same on every platform for one seed.
#pragma once

#include <concepts>
#include <cstdint>
#include <random>

namespace cohort::test {

/// A seeded generator. The standard fixes what mt19937_64 yields, but not the distributions; so the
/// choices are made here. The slight bias of `%` does not matter for a test.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : engine_{seed} {}

  /// One of 0 to n − 1. `n` must be at least 1.
  template <std::integral Int>
  Int below(Int n) {
    return static_cast<Int>(engine_() % static_cast<std::uint64_t>(n));
  }
  /// True once in `n` on average.
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace cohort::test
