// SPDX-License-Identifier: Apache-2.0
/// @file
/// The table of SECURITY.md: which server answers what to whom.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/scratch_file.hpp>

namespace cohort::test {

/// Who asks, in the order of the columns.
enum class asker : std::uint8_t {
  anyone,
  key,
  token,
  page,
  this_machine,
  another_machine,
  managing_token,
  managing_page
};
inline constexpr int askers = 8;

struct access_row {
  std::string call;
  std::vector<std::string> cells;
};

/// The rows of SECURITY.md. @param text Its contents.
inline std::vector<access_row> access_table(const std::string& text) {
  std::vector<access_row> rows;
  std::size_t at = text.find("\n| call | ");
  REQUIRE(at != std::string::npos);
  for (++at; text[at] == '|'; at = text.find('\n', at) + 1) {
    std::string_view line{text.data() + at, text.find('\n', at) - at};
    std::vector<std::string> cells;
    line.remove_prefix(1);
    while (!line.empty()) {
      std::string_view cell = line.substr(0, line.find('|'));
      line.remove_prefix(cell.size() + 1);
      cell.remove_prefix(1);
      cell.remove_suffix(1);
      cells.emplace_back(cell);
    }
    REQUIRE(cells.size() == 1 + askers);
    rows.push_back({cells.front(), {cells.begin() + 1, cells.end()}});
  }
  REQUIRE(rows.size() > 2);
  rows.erase(rows.begin(), rows.begin() + 2);  // The heading, and the line below it.
  return rows;
}

/// An address of this machine that is not loopback's, if it has one.
inline std::optional<std::string> outer_address() {
  ifaddrs* all = nullptr;
  REQUIRE(getifaddrs(&all) == 0);
  std::optional<std::string> found;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    if (a->ifa_addr == nullptr || a->ifa_addr->sa_family != AF_INET) continue;
    const auto* const in = reinterpret_cast<const sockaddr_in*>(a->ifa_addr);
    if ((ntohl(in->sin_addr.s_addr) >> 24U) == 127) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    found = inet_ntop(AF_INET, &in->sin_addr, text.data(), text.size());
  }
  freeifaddrs(all);
  return found;
}

/// A server with the key `key-of-a-client` and the token `token-of-an-operator`, if any.
struct guarded_server {
  std::uint16_t service;
  std::uint16_t management;
};

/// One call as somebody makes it; a page makes it with a foreign origin, and by a rebound name, of
/// which the weaker refusal counts.
inline std::pair<int, std::string> ask_as(asker who, const guarded_server& server,
                                          const std::string& method, const std::string& path,
                                          const std::string& body = "") {
  const bool is_managing = who >= asker::this_machine;
  const std::uint16_t port = is_managing ? server.management : server.service;
  const auto ask = [&](const char* from, const std::string& host, const std::string& fields) {
    connection c{port, 0, from};
    c.host = host;
    return c.ask(method, path, body, fields);
  };
  const std::string token = "Authorization: Bearer token-of-an-operator\r\n";
  const std::optional<std::string> outer = outer_address();
  const char* const far = outer ? outer->c_str() : "127.0.0.1";
  const std::string passed_on = outer ? "" : "X-Forwarded-For: 10.1.2.3\r\n";
  switch (who) {
    case asker::anyone:
      return ask(far, "gpu7.example", passed_on);
    case asker::key:
      return ask(far, "gpu7.example", passed_on + "Authorization: Bearer key-of-a-client\r\n");
    case asker::token:
    case asker::managing_token:
      return ask(far, "gpu7.example", passed_on + token);
    case asker::this_machine:
      return ask("127.0.0.1", "localhost:" + std::to_string(port), "");
    case asker::another_machine:
      return ask(far, "localhost", passed_on);
    case asker::page:
    case asker::managing_page: {
      const std::string type = "Content-Type: text/plain\r\n";
      const auto rebound =
          ask("127.0.0.1", "evil.example:" + std::to_string(port),
              type + "Origin: http://evil.example:" + std::to_string(port) + "\r\n");
      // A page may send a read by the server's own name, and cannot see the answer.
      if (method == "GET" || path == "/v2/repository/index") return rebound;
      const auto foreign = ask("127.0.0.1", "localhost:" + std::to_string(port),
                               type + "Origin: http://evil.example\r\n");
      return foreign.first < rebound.first ? foreign : rebound;
    }
  }
  return {};
}

}  // namespace cohort::test
