// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the inference server says to whoever reads its log: `log_line`.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>

namespace cohort::inference {

/// One line on standard error, with the server's name. A log that cannot be written is no reason to
/// stop. Thread safety: any thread; lines stay whole.
inline void log_line(std::string_view what) noexcept {
  try {
    fmt::print(stderr, "inference_server: {}\n", what);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // Nobody reads it.
  }
}

}  // namespace cohort::inference
