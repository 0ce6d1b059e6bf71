// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shapes for the models' operations. C++17: also included by GPU kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::models {

enum class activation : std::uint8_t { none, relu, gelu, tanh };

/// Images n × height × width × channels (channels last), a square window over them.
struct window_shape {
  std::size_t images, height, width, channels;
  std::size_t kernel, stride, padding;

  [[nodiscard]] constexpr std::size_t out_height() const noexcept {
    return (height + 2 * padding - kernel) / stride + 1;
  }
  [[nodiscard]] constexpr std::size_t out_width() const noexcept {
    return (width + 2 * padding - kernel) / stride + 1;
  }
};

/// Token sequences: n × tokens × (heads · head_size).
struct head_shape {
  std::size_t sequences, tokens, heads, head_size;
};

}  // namespace cohort::models
