// SPDX-License-Identifier: Apache-2.0
/// @file
/// Writes readable JSON: numbers in shortest round-trip form, small objects on one line.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::formats {

/// Writes one document piece by piece. The caller keeps begins and ends balanced.
class json_writer {
 public:
  /// Layout of the members of a container; within `line`, always `line`.
  enum class layout : std::uint8_t { lines, line };

  json_writer& begin_object(layout l = layout::lines) { return begin('{', l); }
  json_writer& end_object() { return end('}'); }
  json_writer& begin_array(layout l = layout::lines) { return begin('[', l); }
  json_writer& end_array() { return end(']'); }

  /// The name of the next value.
  json_writer& key(std::string_view name);
  json_writer& null() { return raw("null"); }
  json_writer& value(std::string_view text);
  json_writer& value(const char* text) { return value(std::string_view{text}); }
  json_writer& value(bool b) { return raw(b ? "true" : "false"); }
  /// Infinity and NaN, which JSON lacks, become null.
  json_writer& value(double x);
  template <std::integral T>
  json_writer& value(T x) {
    if constexpr (std::signed_integral<T>) {
      return integer(static_cast<std::int64_t>(x));
    } else {
      return natural(static_cast<std::uint64_t>(x));
    }
  }
  template <class T>
  json_writer& field(std::string_view name, const T& x) {
    return key(name).value(x);
  }

  /// The document, with a newline at its end.
  [[nodiscard]] std::string take();

 private:
  struct level {
    layout how;
    bool empty = true;
  };

  json_writer& begin(char bracket, layout l);
  json_writer& end(char bracket);
  json_writer& raw(std::string_view text);
  json_writer& integer(std::int64_t x);
  json_writer& natural(std::uint64_t x);
  void separate();
  void new_line();

  std::string out_;
  std::vector<level> levels_;
  bool after_key_ = false;
};

}  // namespace cohort::formats
