// SPDX-License-Identifier: Apache-2.0
/// @file
/// Identifies a model for its kept measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace cohort::models {

/// FNV-1a of 64 bits: detects accidental, not malicious changes of content. The same on every
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

/// Fingerprint of a file's content. @param below Empty: the path is opened directly; else below
/// that folder, as described in `runtime::onnx::session_options`. @throws config_error If it cannot
/// be read.
[[nodiscard]] std::string fingerprint_of_file(const std::string& path,
                                              const std::string& below = {});
/// Whether a file contains these bytes. Arguments as above.
[[nodiscard]] bool is_in_file(std::string_view bytes, const std::string& path,
                              const std::string& below = {});

/// A model's content, in words.
struct model_identity {
  std::string tensors;  ///< Names, types and shapes of inputs, outputs and parameters.
  std::string weights;  ///< The source of their values.
};

/// @param path Of a safetensors file, identified by content, not by name; empty: generated from
/// `seed`.
/// @throws config_error If the name is unknown or the file cannot be read.
[[nodiscard]] model_identity identify(const std::string& name, std::uint64_t seed,
                                      const std::string& path);

}  // namespace cohort::models
