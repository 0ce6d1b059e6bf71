// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exception for bad configuration, and the check that throws it.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace cohort {

/// A value that a caller configured is outside its allowed range. The message names the field, the
/// value and the range, on one line. Late, dropped, refused and cancelled are results, never
/// errors.
class config_error : public std::invalid_argument {
 public:
  explicit config_error(const std::string& what,
                        std::source_location where = std::source_location::current())
      : std::invalid_argument{what}, where_{where} {}

  /// The line of the check that failed.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 private:
  std::source_location where_;
};

/// Checks an argument of a constructor or configuration function.
/// @throws config_error With `message` if `condition` is false.
constexpr void expects(bool condition, const char* message,
                       std::source_location where = std::source_location::current()) {
  if (!condition) throw config_error{message, where};
}

}  // namespace cohort
