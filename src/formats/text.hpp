// SPDX-License-Identifier: Apache-2.0
/// @file
/// Text input and output: input errors, numbers with their ranges, quoting, whole files.
#pragma once

#include <cohort/core/error.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

namespace cohort::formats {

/// Bad usage or bad input: the message is one line with place, value and what was expected. The
/// command prints it and exits with status 2.
class input_error : public error {
 public:
  explicit input_error(const std::string& what,
                       std::source_location where = std::source_location::current())
      : error{what, where} {}
};

/// The permitted numbers of a field or an option.
struct number_range {
  double low = 0;
  double high = std::numeric_limits<double>::max();
  bool above_low = false;  ///< `low` itself is out of range.

  [[nodiscard]] bool contains(double x) const noexcept {
    return (above_low ? x > low : x >= low) && x <= high;
  }
  /// "a number above 0 and at most 1".
  [[nodiscard]] std::string describe() const;
};

/// The permitted integers of a field or an option.
struct integer_range {
  std::uint64_t low = 0;
  std::uint64_t high = std::numeric_limits<std::uint64_t>::max();

  /// "an integer from 1 to 100".
  [[nodiscard]] std::string describe() const;
};

/// Throws "WHERE: got VALUE, expected EXPECTED". @param value Printed unchanged.
[[noreturn]] void fail(std::string_view where, std::string_view value, std::string_view expected);

/// Converts all of `text` to a finite decimal number, if it is one.
[[nodiscard]] std::optional<double> to_number(std::string_view text) noexcept;
/// Converts all of `text` to a decimal integer without sign, if it is one.
[[nodiscard]] std::optional<std::uint64_t> to_integer(std::string_view text) noexcept;

/// Converts `text`, the value of `where`. @throws input_error If it is out of range.
[[nodiscard]] double parse_number(std::string_view where, std::string_view text,
                                  const number_range& range);
/// Converts `text`, the value of `where`. @throws input_error If it is out of range.
[[nodiscard]] std::uint64_t parse_integer(std::string_view where, std::string_view text,
                                          const integer_range& range);

/// The text as a JSON string with quotes. Invalid UTF-8 becomes U+FFFD.
[[nodiscard]] std::string quote(std::string_view text);
/// `quote`, shortened for an error message.
[[nodiscard]] std::string quote_short(std::string_view text);

/// Length of the UTF-8 sequence at the start of `text`, or 0 if it is not well formed.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;
[[nodiscard]] bool is_utf8(std::string_view text) noexcept;

/// Checks in advance, as far as possible without writing, that `write_file` will succeed.
/// @throws input_error If the path is a folder, or its folder is missing or not writable.
void check_writable(const std::string& path);

/// Name of an input in errors: its path, or "standard input" for "-".
[[nodiscard]] std::string input_name(const std::string& path);

/// Reads a whole file, or standard input if `path` is "-".
/// @throws input_error If it cannot be read or is larger than 256 MiB.
[[nodiscard]] std::string read_file(const std::string& path);
/// Reads a whole regular file. Never waits for other kinds, such as a pipe.
/// @throws input_error If it cannot be read or is larger than 256 MiB.
[[nodiscard]] std::string read_regular_file(const std::string& path);
/// Writes a whole file. @throws input_error If it cannot be written.
void write_file(const std::string& path, std::string_view text);
/// Writes to standard output. @throws input_error If it cannot be written.
void print(std::string_view text);

}  // namespace cohort::formats
