// SPDX-License-Identifier: Apache-2.0
/// @file
/// What measurements share: the batch sizes, and the median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cohort::models {

/// 1, 2, 4, ... and `most`, which is at least 1.
[[nodiscard]] inline std::vector<std::uint32_t> measured_sizes(std::uint32_t most) {
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t b = 1; b < most; b *= 2) sizes.push_back(b);
  sizes.push_back(most);
  return sizes;
}

/// The upper one of an even number. @param of Not empty.
template <class T>
[[nodiscard]] T median(std::vector<T> of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::ranges::nth_element(of, middle);
  return *middle;
}

}  // namespace cohort::models
