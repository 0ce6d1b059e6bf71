// SPDX-License-Identifier: Apache-2.0
/// @file
/// Strict reading of JSON: every error names the file, the place, the value and what was expected.
#pragma once

#include "text.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

struct json_member;

/// A parsed JSON value. Objects keep the order of their members, whose names are distinct.
struct json_value {
  enum class kind : std::uint8_t { null, boolean, number, string, array, object };

  kind type = kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;  ///< The string; or the number, as written if it has a fraction or exponent.
  std::vector<json_value> items;
  std::vector<json_member> members;
};

struct json_member {
  std::string name;
  json_value value;
};

/// Parses one JSON document. @param file Name for errors.
/// @throws input_error If it is not JSON in UTF-8, a number overflows, a field is repeated, or
/// values are nested deeper than 64.
[[nodiscard]] json_value parse_json(const std::string& file, std::string_view text);

/// A value and its place. Its functions check the value and throw input_error if it is not as
/// required. Refers to the value and the file's name; both must outlive it.
class json_cursor {
 public:
  json_cursor(const std::string& file, const json_value& value)
      : file_{&file}, value_{&value}, path_{"$"} {}

  [[nodiscard]] const json_value& value() const noexcept { return *value_; }
  /// "FILE: $.models[0]".
  [[nodiscard]] std::string place() const;
  /// Throws an error about this value.
  [[noreturn]] void refuse(std::string_view expected) const;

  [[nodiscard]] double number(const number_range& range) const;
  /// A whole number; 8.0 also counts.
  [[nodiscard]] std::uint64_t integer(const integer_range& range) const;
  /// A string that is not empty.
  [[nodiscard]] const std::string& string(
      std::string_view expected = "a text that is not empty") const;
  /// Index of the string among `choices`.
  [[nodiscard]] std::size_t choice(std::initializer_list<std::string_view> choices) const;

  /// The items of an array that is not empty.
  [[nodiscard]] std::vector<json_cursor> items(std::string_view expected) const;
  /// The members of a nonempty object, with any names.
  [[nodiscard]] std::vector<std::pair<std::string_view, json_cursor>> members(
      std::string_view expected) const;
  /// Checks that this is an object with no other fields.
  void only(std::initializer_list<std::string_view> names) const;
  /// A field of an object, if present.
  [[nodiscard]] std::optional<json_cursor> find(std::string_view name) const;
  /// A required field of an object.
  [[nodiscard]] json_cursor require(std::string_view name, std::string_view expected) const;

 private:
  json_cursor(const json_cursor& parent, const json_value& value, const std::string& step)
      : file_{parent.file_}, value_{&value}, path_{parent.path_ + step} {}

  const std::string* file_;
  const json_value* value_;
  std::string path_;
};

}  // namespace cohort::formats
