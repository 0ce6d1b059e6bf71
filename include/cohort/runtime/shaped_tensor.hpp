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

/// A dense tensor of whatever shape, in memory of its owner's. Its name and its type are those of
/// the `tensor_info` that it stands for.
struct shaped_tensor {
  std::vector<std::int64_t> shape;  ///< Each at least 0; none of a single number.
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner{};  ///< Keeps the memory; null: somebody else does.
};

}  // namespace cohort::runtime
