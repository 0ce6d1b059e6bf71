// SPDX-License-Identifier: Apache-2.0
/// @file
/// Random numbers that are the same with every standard library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

namespace cohort::bench {

/// The distributions of <random> differ between libraries; these do not.
class random_draws {
 public:
  explicit random_draws(std::uint64_t seed) : bits_{seed * 7919 + 13} {}
  std::size_t below(std::size_t n) { return bits_() % n; }
  /// From 0 to below 1.
  double unit() { return static_cast<double>(bits_() >> 11U) * 0x1p-53; }
  /// Its logarithm is uniform.
  double between(double low, double high) { return low * std::pow(high / low, unit()); }
  /// Normal, by twelve uniform ones.
  double normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit();
    return sum;
  }

 private:
  std::mt19937_64 bits_;
};

}  // namespace cohort::bench
