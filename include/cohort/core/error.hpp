// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exceptions that cohort throws, and the check of arguments that throws one.
#pragma once

#include <cohort/core/version.hpp>

#include <source_location>
#include <stdexcept>
#include <string>

namespace cohort {

/// The base class of all exceptions that cohort throws. The message is one line. Late, dropped,
/// refused and cancelled are results, never errors.
class error : public std::runtime_error {
 public:
  /// The line of the check that failed.
  [[nodiscard]] const std::source_location& where() const noexcept { return where_; }

 protected:
  error(const std::string& what, std::source_location where)
      : std::runtime_error{what}, where_{where} {}

 private:
  std::source_location where_;
};

/// A configured value or an input is out of range: the same call fails again, on every machine.
/// The message names the field, the value and the range.
class config_error : public error {
 public:
  explicit config_error(const std::string& what,
                        std::source_location where = std::source_location::current())
      : error{what, where} {}
};

/// Memory, a pool, a port or a server that is needed is not available: the same call may succeed
/// later, or on another machine. The message names what was asked for and what is left.
class resource_error : public error {
 public:
  explicit resource_error(const std::string& what,
                          std::source_location where = std::source_location::current())
      : error{what, where} {}
};

/// A device or a backend failed at work that it had accepted: its results cannot be trusted. For
/// CUDA, see `runtime::cuda::cuda_error`.
class device_error : public error {
 public:
  explicit device_error(const std::string& what,
                        std::source_location where = std::source_location::current())
      : error{what, where} {}
};

/// Checks an argument of a constructor or configuration function.
/// @throws config_error With `message` if `condition` is false.
constexpr void expects(bool condition, const char* message,
                       std::source_location where = std::source_location::current()) {
  if (!condition) throw config_error{message, where};
}

}  // namespace cohort
