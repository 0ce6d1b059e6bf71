// SPDX-License-Identifier: Apache-2.0
/// @file
/// The LLM server as a child process, and what its clients say to it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>

namespace cohort::chat {

using nlohmann::json;
using test::connection;

class child : public test::child_server {
 public:
  explicit child(std::vector<std::string> options) : child_server{LLM_SERVER, std::move(options)} {}
  /// That of the ready line.
  [[nodiscard]] std::uint16_t management_port() const { return test::management_port_of(*this); }
};

inline json completion(const json& more = json::object()) {
  json o{{"model", "random-tiny"}, {"prompt", "Once"}, {"max_tokens", 12}, {"seed", 7}};
  o.update(more);
  return o;
}
inline json chat(const json& more = json::object()) {
  json o{{"model", "random-tiny"},
         {"messages", {{{"role", "user"}, {"content", "Hello"}}}},
         {"max_tokens", 12},
         {"seed", 7}};
  o.update(more);
  return o;
}

struct answer {
  int status;
  json body;
};
inline answer post(connection& c, const std::string& path, const json& body) {
  auto [status, text] = c.ask("POST", path, body.dump());
  return {status, json::parse(text, nullptr, false)};
}

/// A value of /metrics without labels; -1 if there is none.
inline double metric(connection& c, const std::string& name) {
  const std::string text = "\n" + c.ask("GET", "/metrics").second;
  const std::size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::atof(text.c_str() + at + name.size() + 2);
}
/// Asks again and again until `is_so`, without a pause. @returns Whether it became so.
template <class Predicate>
bool becomes(Predicate is_so) {
  for (int i = 0; i < 200000; ++i) {
    if (is_so()) return true;
  }
  return false;
}
/// Waits until nothing is running or waiting. Each look is behind a text, which waits its turn
/// among those that are left: so there are few.
inline bool becomes_idle(std::uint16_t port) {
  connection c{port};
  return becomes([&] {
    const auto [status, body] = post(c, "/v1/completions", completion({{"max_tokens", 1}}));
    return (status == 200 || status == 429) && metric(c, "cohort_llm_running_sequences") == 0 &&
           metric(c, "cohort_llm_waiting_sequences") == 0;
  });
}

}  // namespace cohort::chat
