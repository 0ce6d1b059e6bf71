// SPDX-License-Identifier: Apache-2.0
/// @file
/// A tensor of any shape: `shaped_tensor`.
#pragma once

#include <cohort/core/version.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace cohort::runtime {

/// The number of elements of a shape. @param shape Dimensions, each at least 0; with fewer than
/// 2^64 elements.
[[nodiscard]] inline std::size_t elements_of(std::span<const std::int64_t> shape) noexcept {
  std::size_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
  return n;
}

/// A dense tensor of any shape, in its owner's memory. Its name and type are those of the
/// corresponding `tensor_info`; strings lie as `take_string` takes them.
struct shaped_tensor {
  std::vector<std::int64_t> shape;  ///< Each at least 0; empty for a scalar.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner{};  ///< Keeps the memory alive; null if another owner does.
};

}  // namespace cohort::runtime
