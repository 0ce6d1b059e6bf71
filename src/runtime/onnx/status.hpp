// SPDX-License-Identifier: Apache-2.0
/// @file
/// ONNX Runtime's messages about failed calls.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api.hpp"

namespace cohort::runtime::onnx::detail {

/// A text as one line of at most 1000 characters; unprintable characters become spaces.
[[nodiscard]] inline std::string one_line(std::string_view text) {
  constexpr std::size_t most = 1000;
  std::string line;
  for (const char c : text) {
    const bool is_space = static_cast<unsigned char>(c) <= ' ' || c == '\x7f';
    if (is_space && (line.empty() || line.back() == ' ')) continue;
    if (line.size() == most) {
      line += "...";
      return line;
    }
    line += is_space ? ' ' : c;
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

/// Releases the status. @returns Its message; none if the call succeeded.
[[nodiscard]] inline std::optional<std::string> failure_of(const ort_api& api, ort_status* status) {
  if (status == nullptr) return std::nullopt;
  std::string text = one_line(api.error_message(status));
  api.release_status(status);
  return text;
}

}  // namespace cohort::runtime::onnx::detail
