// SPDX-License-Identifier: Apache-2.0
/// @file
/// Triton's extensions for logs and traces: a server's settings, and changes by clients.
#pragma once

#include <cohort/serve/infer_request.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace cohort::serve {

/// Which lines of the log are written, by severity.
struct log_levels {
  bool info = true;
  bool warning = true;
  bool error = true;

  friend bool operator==(const log_levels&, const log_levels&) = default;
};

/// The process's levels: all at the start. Lines that a program prints at its start and end are not
/// part of the log. Thread safety: any thread.
[[nodiscard]] log_levels logged_levels() noexcept;
void log_only(log_levels levels) noexcept;

/// The body of GET /v2/logging.
[[nodiscard]] std::string write_log_settings(const log_levels& now);
/// Parses the body of POST /v2/logging. The levels can be changed. Any other setting must be
/// unchanged, or null: differing and unknown settings are refused by name.
[[nodiscard]] std::variant<log_levels, protocol_error> parse_log_settings(std::string_view body,
                                                                          const log_levels& now);

/// The body of GET /v2/trace/setting: nothing is traced.
[[nodiscard]] std::string_view trace_settings() noexcept;
/// Checks the body of POST /v2/trace/setting. @returns Why it is refused; nothing if it is not.
[[nodiscard]] std::optional<protocol_error> check_trace_settings(std::string_view body);

}  // namespace cohort::serve
