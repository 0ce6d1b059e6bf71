// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tensor of a shape of its own: `shaped_tensor`.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cohort::runtime {

/// How many elements a shape has. @param shape Each at least 0; with fewer than 2^64 elements.
[[nodiscard]] inline std::size_t elements_of(std::span<const std::int64_t> shape) noexcept {
  std::size_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  return n;
}

/// A dense tensor of whatever shape, in memory of its owner's. Its name and its type are those of
/// the `tensor_info` that it stands for; strings lie as `take_string` takes them.
struct shaped_tensor {
  std::vector<std::int64_t> shape;  ///< Each at least 0; none of a single number.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner{};  ///< Keeps the memory; null: somebody else does.
};

}  // namespace cohort::runtime
