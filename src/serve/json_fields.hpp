// SPDX-License-Identifier: Apache-2.0
/// @file
/// Required and typed JSON fields, with error messages.
#pragma once

#include <cohort/serve/repository_request.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace cohort::serve::json {

namespace dom = simdjson::dom;

/// Thrown with a message to leave the parse.
struct rejected {
  std::string message;
};

[[noreturn]] inline void reject(std::string message) { throw rejected{std::move(message)}; }

inline std::string_view kind_of(const dom::element& e) {
  switch (e.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

/// The place of fields, formatted only for errors.
struct place {
  std::string_view list{};  ///< The list with the fields in its element `index`; empty: the body.
  std::size_t index = 0;
  std::string_view inner{};  ///< "parameters.", if they are in there.

  /// The full name of a field; of the element itself if `name` is empty.
  [[nodiscard]] std::string of(std::string_view name) const {
    if (list.empty()) return fmt::format("{}{}", inner, name);
    return fmt::format("{}[{}]{}{}{}", list, index, name.empty() ? "" : ".", inner, name);
  }
  [[nodiscard]] place parameters() const { return {list, index, "parameters."}; }
};

/// Appends a character of a string, escaped where JSON requires it.
template <class Out>
void append_escaped(Out& out, char c) {
  constexpr std::string_view escaped = "\"\\\n\r\t";
  constexpr std::string_view letters = "\"\\nrt";
  if (const std::size_t at = escaped.find(c); at != std::string_view::npos) {
    out.push_back('\\');
    out.push_back(letters[at]);
  } else if (static_cast<unsigned char>(c) < 0x20) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  } else {
    out.push_back(c);
  }
}

/// A field of an object, which may occur only once.
inline std::optional<dom::element> field(const dom::object& o, std::string_view name,
                                         const place& at) {
  std::optional<dom::element> found;
  for (const auto& [key, value] : o) {
    if (key != name) continue;
    if (found) reject(fmt::format("{} is given twice", at.of(name)));
    found = value;
  }
  return found;
}
inline dom::element needed(const dom::object& o, std::string_view name, const place& at) {
  const auto f = field(o, name, at);
  if (!f) reject(fmt::format("{} is missing", at.of(name)));
  return *f;
}

/// Converts the value of a field. @param what The type, in words.
template <class T>
T as(const dom::element& e, const place& at, std::string_view name, std::string_view what) {
  T value;
  if (e.get(value) != simdjson::SUCCESS) {
    reject(fmt::format("{} must be {}, not {}", at.of(name), what, kind_of(e)));
  }
  return value;
}
inline std::string_view text(const dom::element& e, const place& at, std::string_view name) {
  return as<std::string_view>(e, at, name, "a string");
}
inline bool boolean(const dom::element& e, const place& at, std::string_view name) {
  return as<bool>(e, at, name, "a boolean");
}
inline dom::object object(const dom::element& e, const place& at, std::string_view name) {
  return as<dom::object>(e, at, name, "an object");
}
inline dom::array array(const dom::element& e, const place& at, std::string_view name) {
  return as<dom::array>(e, at, name, "an array");
}

/// Calls `read` with a body that is a JSON object; returns its result, or its rejection with status
/// 400.
template <class Read>
auto read_body(std::string_view body, Read read)
    -> std::variant<decltype(read(dom::object{})), protocol_error> {
  if (body.size() > most_repository_body) {
    return protocol_error{413, fmt::format("the body has {} bytes: expected at most {}",
                                           body.size(), most_repository_body)};
  }
  try {
    dom::parser parser;
    dom::element root;
    if (const auto error = parser.parse(simdjson::padded_string{body}).get(root);
        error != simdjson::SUCCESS) {
      reject("the body is not valid JSON");
    }
    return read(object(root, {}, "the body"));
  } catch (rejected& r) {
    return protocol_error{400, std::move(r.message)};
  }
}

}  // namespace cohort::serve::json
