// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/control_gate.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/system/error_code.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::serve {
namespace {

constexpr std::size_t longest_quote = 100;
constexpr std::string_view or_token = ", or a token of --control-token-file";

/// Refuses a Host that is a foreign name resolving to this machine.
/// @param otherwise Another way to make the call.
std::optional<denial> check_host(const http_request& request,
                                 std::string_view otherwise = or_token) {
  if (is_loopback_host(request.host)) return std::nullopt;
  return denial{403, fmt::format("Host: got \"{}\", expected localhost or an address of loopback{}",
                                 request.host.substr(0, longest_quote), otherwise)};
}

/// Refuses requests from other machines and from pages of a browser. @param what The request, in
/// words.
std::optional<denial> check_origin(const http_request& request, std::string_view what,
                                   std::string_view otherwise, std::string_view host_otherwise) {
  if (!request.is_local) {
    return denial{
        403, fmt::format("{} are taken from this machine and through no proxy{}", what, otherwise)};
  }
  if (auto denied = check_host(request, host_otherwise)) return denied;
  const std::string own = fmt::format("http://{}", request.host);
  if (!request.origin.empty() && request.origin != own) {
    return denial{403,
                  fmt::format("Origin: got \"{}\", expected none or {}: pages of a browser may "
                              "not change the server",
                              request.origin.substr(0, longest_quote), own)};
  }
  return std::nullopt;
}

}  // namespace

bool is_loopback_host(std::string_view host) {
  std::string_view name = host.substr(0, host.find(':'));
  if (host.starts_with('[')) {
    name = host.substr(1, host.find(']') - 1);
    if (name.size() + 2 > host.size()) return false;
    host.remove_prefix(name.size() + 2);
  } else {
    host.remove_prefix(name.size());
  }
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!host.empty() && (host.front() != ':' || !std::ranges::all_of(host.substr(1), is_digit))) {
    return false;
  }
  if (boost::beast::iequals(boost::beast::string_view{name.data(), name.size()}, "localhost")) {
    return true;
  }
  boost::system::error_code e;
  const auto address = boost::asio::ip::make_address(std::string{name}, e);
  return !e && address.is_loopback();
}

std::string_view control_gate::who_changes() const noexcept {
  if (!is_on_) return "off";
  if (!tokens_.is_empty()) return "with a token";
  return has_management_port_ ? "this machine, on the management port" : "nobody";
}

std::optional<denial> control_gate::change(const http_request& request) const {
  if (!is_on_)
    return denial{404,
                  "calls that change the server are switched off (--control off, or "
                  "--model-control-mode none or poll)"};
  if (!tokens_.is_empty()) {
    if (tokens_.admits(request.authorization)) return std::nullopt;
    return denial{401, request.authorization.empty()
                           ? "no token: expected Authorization: Bearer TOKEN, with a token of "
                             "--control-token-file"
                           : "the token is not one of --control-token-file"};
  }
  if (!request.is_on_management_port) {
    return denial{
        403, has_management_port_
                 ? "calls that change the server are taken on the management port, from this "
                   "machine; on this port they need a token (--control-token-file)"
                 : "calls that change the server need --management-port, which takes them from "
                   "this machine, or a token (--control-token-file)"};
  }
  return check_origin(request, "calls that change the server",
                      "; others need a token (--control-token-file)", or_token);
}

std::optional<denial> control_gate::from_afar(const http_request& request, std::string_view what) {
  return check_origin(request, what, "", "");
}

std::optional<denial> control_gate::look(const http_request& request) const {
  if (!tokens_.is_empty() && tokens_.admits(request.authorization)) return std::nullopt;
  return check_host(request);
}

}  // namespace cohort::serve
