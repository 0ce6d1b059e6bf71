// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/repository_request.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "json_fields.hpp"

namespace cohort::serve {
namespace {

using namespace json;

/// A field name from a client, as one line whatever it contains.
std::string named(const place& at, std::string_view key) { return json_string(at.of(key)); }

/// A body without the contents of files, which makes the parsed text short.
struct cut_body {
  std::string json;                     ///< Each content is replaced by "@" and its index.
  std::vector<std::string_view> files;  ///< As in the body, in order.

  explicit cut_body(std::string_view body) {
    std::size_t copied = 0;
    bool is_file = false;    // The last string was the key of a file.
    std::size_t behind = 0;  // Its end.
    for (std::size_t at = body.find('"'); at != body.npos; at = body.find('"', behind)) {
      std::size_t end = at;
      do {
        end = body.find('"', end + 1);
        if (end == body.npos) break;
      } while (is_escaped(body, end));
      if (end == body.npos) break;
      const std::string_view text = body.substr(at + 1, end - at - 1);
      if (is_file && is_colon(body.substr(behind, at - behind))) {
        json += fmt::format("{}@{}", body.substr(copied, at + 1 - copied), files.size());
        files.push_back(text);
        copied = end;
      }
      is_file = text.starts_with("file:");
      behind = end + 1;
    }
    json += body.substr(copied);
  }

  /// Returns a content. Each is taken once, in order: otherwise a short body could request any
  /// number of copies of a long one. @param given The value in `json`.
  [[nodiscard]] std::string_view take(std::string_view given) {
    const bool is_next = next_ < files.size() && given == fmt::format("@{}", next_);
    return is_next ? files[next_++] : given;
  }

 private:
  static bool is_escaped(std::string_view text, std::size_t at) {
    std::size_t n = 0;
    while (n < at && text[at - n - 1] == '\\') ++n;
    return n % 2 == 1;
  }
  static bool is_colon(std::string_view between) {
    const std::size_t colon = between.find_first_not_of(" \t\r\n");
    return colon != between.npos && between[colon] == ':' &&
           between.find_first_not_of(" \t\r\n", colon + 1) == between.npos;
  }

  std::size_t next_ = 0;
};

/// Removes a character from a nonempty text, which may be escaped as in JSON. @returns Nothing if
/// it is not base64, or truncated.
std::optional<unsigned char> take_character(std::string_view& text) {
  unsigned c = static_cast<unsigned char>(text.front());
  std::size_t length = 1;
  if (text.starts_with("\\/")) {
    c = '/';
    length = 2;
  } else if (text.starts_with("\\u") && text.size() >= 6) {
    length = 6;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + length, c, 16);
    if (error != std::errc{} || end != text.data() + length || c > 0x7F) return std::nullopt;
  }
  text.remove_prefix(length);
  return static_cast<unsigned char>(c);
}

void read_parameters(repository_call call, const dom::object& given, cut_body& cut,
                     repository_request& r) {
  const place at = place{}.parameters();
  for (const auto& [key, value] : given) {
    if (call == repository_call::load && key.starts_with("file:")) {
      std::string_view content;
      if (value.get(content) != simdjson::SUCCESS) {
        reject(fmt::format("{} must be a string, not {}", named(at, key), kind_of(value)));
      }
      if (r.files.size() == most_load_files) {
        reject(fmt::format("parameters has more than {0} files, expected at most {0}",
                           most_load_files));
      }
      const std::string name{key.substr(5)};
      if (std::ranges::find(r.files, name, &model_file::name) != r.files.end()) {
        reject(fmt::format("{} is given twice", named(at, key)));
      }
      r.files.push_back({name, std::string{cut.take(content)}});
    } else if (call == repository_call::load && key == "config") {
      if (!r.config.empty()) reject("parameters.config is given twice");
      r.config = text(value, at, key);
      if (r.config.empty()) reject("parameters.config is empty, expected a configuration");
    } else if (call == repository_call::unload && key == "unload_dependents") {
      r.with_dependents = boolean(value, at, key);
    } else {
      reject(fmt::format("{} is unknown", named(at, key)));
    }
  }
  if (!r.files.empty() && r.config.empty()) {
    reject("parameters.config is missing: a load with files needs a configuration");
  }
}

repository_request read(repository_call call, const dom::object& root, cut_body& cut) {
  repository_request r;
  const place body;
  for (const auto& [key, value] : root) {
    if (call == repository_call::index && key == "ready") {
      r.only_ready = boolean(value, body, key);
    } else if (call != repository_call::index && key == "parameters") {
      read_parameters(call, object(value, body, key), cut, r);
    } else {
      reject(fmt::format("{} is unknown", named(body, key)));
    }
  }
  return r;
}

}  // namespace

std::variant<repository_request, protocol_error> parse_repository_request(repository_call call,
                                                                          std::string_view body) {
  if (body.empty()) return repository_request{};
  const bool may_have_files = call == repository_call::load;
  cut_body cut{may_have_files ? body : std::string_view{}};
  return read_body(may_have_files ? std::string_view{cut.json} : body,
                   [&](const dom::object& root) { return read(call, root, cut); });
}

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<unsigned char, 256> values{};
  values.fill(64);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    values[static_cast<unsigned char>(digits[i])] = static_cast<unsigned char>(i);
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  std::size_t n = 0;  // Digits.
  std::size_t padding = 0;
  while (!text.empty()) {
    const std::optional<unsigned char> c = take_character(text);
    if (!c) return std::nullopt;
    if (*c == '=') {
      if (++padding > 2) return std::nullopt;
      continue;
    }
    const unsigned char v = values[*c];
    if (v == 64 || padding > 0) return std::nullopt;
    bits = bits << 6U | v;
    if (++n % 4 == 1) continue;
    out += static_cast<char>(bits >> (4 - n % 4) % 4 * 2 & 0xFFU);
  }
  if (n % 4 == 1) return std::nullopt;
  return out;
}

}  // namespace cohort::serve
