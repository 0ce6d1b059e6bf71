// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/server_settings.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "json_fields.hpp"

namespace cohort::serve {
namespace {

using namespace json;

/// A setting that cannot be changed.
struct fixed_setting {
  std::string_view name;
  std::string_view value;  ///< Without quotes and brackets, which clients may omit.
  std::string_view why;
};

constexpr fixed_setting of_log[] = {{"log_file", "", "the log is written to standard error"},
                                    {"log_verbose_level", "0", "there are no verbose lines"},
                                    {"log_format", "default", "lines of the log have one format"}};

constexpr std::string_view no_traces = "no traces are written";
constexpr fixed_setting of_trace[] = {
    {"trace_level", "OFF", no_traces}, {"trace_rate", "1000", no_traces},
    {"trace_count", "-1", no_traces},  {"log_frequency", "0", no_traces},
    {"trace_file", "", no_traces},     {"trace_mode", "triton", no_traces}};

void check(std::span<const fixed_setting> all, std::string_view key, const dom::element& e) {
  const auto at = std::ranges::find(all, key, &fixed_setting::name);
  if (at == all.end()) reject(fmt::format("{} is unknown", json_string(key)));
  if (e.is_null()) return;  // The default.
  std::string given = simdjson::minify(e);
  std::erase_if(given, [](char c) { return c == '[' || c == ']' || c == '"'; });
  if (given == at->value) return;
  constexpr std::size_t longest_quote = 100;
  reject(fmt::format("{} is {}, expected {}: {}", key, json_string(given.substr(0, longest_quote)),
                     json_string(at->value), at->why));
}

}  // namespace

std::string write_log_settings(const log_levels& now) {
  return fmt::format(
      R"({{"log_file":"","log_info":{},"log_warning":{},"log_error":{},"log_verbose_level":0,"log_format":"default"}})",
      now.info, now.warning, now.error);
}

std::variant<log_levels, protocol_error> parse_log_settings(std::string_view body,
                                                            const log_levels& now) {
  return read_body(body, [&](const dom::object& o) {
    log_levels asked = now;
    for (const auto& [key, value] : o) {
      bool* const level = key == "log_info"      ? &asked.info
                          : key == "log_warning" ? &asked.warning
                          : key == "log_error"   ? &asked.error
                                                 : nullptr;
      if (level != nullptr) {
        *level = boolean(value, {}, key);
      } else {
        check(of_log, key, value);
      }
    }
    return asked;
  });
}

std::string_view trace_settings() noexcept {
  return R"({"trace_level":["OFF"],"trace_rate":"1000","trace_count":"-1","log_frequency":"0","trace_file":"","trace_mode":"triton"})";
}

std::optional<protocol_error> check_trace_settings(std::string_view body) {
  auto read = read_body(body, [](const dom::object& o) {
    for (const auto& [key, value] : o) check(of_trace, key, value);
    return true;
  });
  auto* const why_not = std::get_if<protocol_error>(&read);
  return why_not != nullptr ? std::optional{std::move(*why_not)} : std::nullopt;
}

}  // namespace cohort::serve
