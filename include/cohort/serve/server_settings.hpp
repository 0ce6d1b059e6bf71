// SPDX-License-Identifier: Apache-2.0
/// @file
/// Triton's extensions for logs and traces: a server's settings, and what clients ask to change.
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

/// Of the process: all levels at the start. What a program prints at its start and end is no line
/// of the log. Thread safety: any thread.
[[nodiscard]] log_levels logged_levels() noexcept;
void log_only(log_levels levels) noexcept;

/// The body of GET /v2/logging.
[[nodiscard]] std::string write_log_settings(const log_levels& now);
/// What the body of POST /v2/logging asks for. The levels can be switched. Any other setting must
/// be as it is, or null: what differs is refused by its name, and unknown settings are.
[[nodiscard]] std::variant<log_levels, protocol_error> parse_log_settings(std::string_view body,
                                                                          const log_levels& now);

/// The body of GET /v2/trace/setting: nothing is traced.
[[nodiscard]] std::string_view trace_settings() noexcept;
/// Why the body of POST /v2/trace/setting cannot be done; nothing: it asks for what is.
[[nodiscard]] std::optional<protocol_error> check_trace_settings(std::string_view body);

}  // namespace cohort::serve
