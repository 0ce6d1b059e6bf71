// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tells one model from another, for what was measured of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cohort::models {

/// FNV-1a of 64 bits: tells contents apart that differ by chance, not by malice. The same on every
/// machine. O(bytes).
class fingerprint {
 public:
  fingerprint& add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes) {
      state_ = (state_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001B3ULL;
    }
    return *this;
  }
  fingerprint& add(std::string_view text) noexcept {
    return add(std::as_bytes(std::span{text.data(), text.size()}));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return state_; }
  /// 16 hexadecimal digits.
  [[nodiscard]] std::string text() const;

 private:
  std::uint64_t state_ = 0xCBF29CE484222325ULL;
};

/// Of a file's content. @param below Empty: the path is opened as it is; else below that folder, as
/// `runtime::onnx::session_options` says. @throws config_error If it cannot be read.
[[nodiscard]] std::string fingerprint_of_file(const std::string& path,
                                              const std::string& below = {});
/// Whether a file has these bytes somewhere. As above.
[[nodiscard]] bool is_in_file(std::string_view bytes, const std::string& path,
                              const std::string& below = {});

/// A model's content, in words.
struct model_identity {
  std::string tensors;  ///< Its input, output and parameters: names, types and shapes.
  std::string weights;  ///< Where their values come from.
};

/// @param path Of a safetensors file, whose content counts, not its name; empty: generated from
/// `seed`.
/// @throws config_error If the name is unknown or the file cannot be read.
[[nodiscard]] model_identity identify(const std::string& name, std::uint64_t seed,
                                      const std::string& path);

}  // namespace cohort::models
