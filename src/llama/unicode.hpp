// SPDX-License-Identifier: Apache-2.0
/// @file
/// As much of Unicode as tokenizers split by.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cohort::llama {

struct code_point {
  char32_t value;
  std::size_t length;  ///< Bytes.
};

/// The first character; what is not UTF-8 is U+FFFD, one byte at a time. Not of an empty text.
[[nodiscard]] code_point next_code_point(std::string_view text) noexcept;
[[nodiscard]] std::string to_utf8(char32_t c);

/// General category L.
[[nodiscard]] bool is_letter(char32_t c) noexcept;
/// General category N.
[[nodiscard]] bool is_number(char32_t c) noexcept;
/// White_Space.
[[nodiscard]] bool is_space(char32_t c) noexcept;

}  // namespace cohort::llama
