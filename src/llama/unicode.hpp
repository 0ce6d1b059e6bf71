// SPDX-License-Identifier: Apache-2.0
/// @file
/// As much of Unicode as tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// How a letter or mark is written: classes of general categories, of which tokenizers join two.
enum class letter_case : std::uint8_t {
  none,   ///< No letter and no mark.
  upper,  ///< Lu, Lt.
  lower,  ///< Ll.
  both,   ///< Lm, Lo, M: it goes with either.
};
/// By ICU.  @throws config_error Without it.
[[nodiscard]] letter_case case_of(char32_t c);
/// The text in normal form C, by ICU; a text that is not UTF-8 stays as it is. The text has no more
/// than three times the bytes of its normal form.
/// @throws config_error Without ICU, unless the text is ASCII.
[[nodiscard]] std::string to_nfc(std::string_view text);
/// Whether ICU is there.
[[nodiscard]] bool has_icu() noexcept;

}  // namespace cohort::llama
