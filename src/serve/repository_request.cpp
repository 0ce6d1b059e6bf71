// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/repository_request.hpp>

#include <fmt/format.h>

#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "json_fields.hpp"

namespace cohort::serve {
namespace {

using namespace json;

/// A field that a client has named, on one line whatever it holds.
std::string named(const place& at, std::string_view key) { return json_string(at.of(key)); }

void read_parameters(repository_call call, const dom::object& given, repository_request& r) {
  const place at = place{}.parameters();
  for (const auto& [key, value] : given) {
    if (call == repository_call::load && key.starts_with("file:")) {
      reject(
          fmt::format("{} is not supported: a model is loaded as its files are", named(at, key)));
    }
    if (call == repository_call::load && key == "config") {
      r.config = text(value, at, key);
      if (r.config.empty()) reject("parameters.config is empty, expected a configuration");
    } else if (call == repository_call::unload && key == "unload_dependents") {
      boolean(value, at, key);
    } else {
      reject(fmt::format("{} is unknown", named(at, key)));
    }
  }
}

repository_request read(repository_call call, const dom::object& root) {
  repository_request r;
  const place body;
  for (const auto& [key, value] : root) {
    if (call == repository_call::index && key == "ready") {
      r.only_ready = boolean(value, body, key);
    } else if (call != repository_call::index && key == "parameters") {
      read_parameters(call, object(value, body, key), r);
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
  if (body.size() > most_repository_body) {
    return protocol_error{413, fmt::format("the body has {} bytes: expected at most {}",
                                           body.size(), most_repository_body)};
  }
  return read_body(body, [call](const dom::object& root) { return read(call, root); });
}

}  // namespace cohort::serve
