// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decides which clients may change or inspect a server over HTTP: `control_gate`.
#pragma once

#include <cohort/serve/http.hpp>
#include <cohort/serve/key_ring.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace cohort::serve {

/// Why a call is refused, and how to make it correctly.
struct denial {
  int status;  ///< 401, 403 or 404.
  std::string why;
};

/// Decides by the header of a request. With a token file, clients with a token may change the
/// server, on any port. Without one, only programs on this machine may, on the management port, and
/// no page of a browser. Thread safety: any thread.
class control_gate {
 public:
  /// @param is_on If false, no client may change the server.
  /// @param tokens Of the token file; empty: there is none. Must outlive this.
  control_gate(bool is_on, const key_ring& tokens, bool has_management_port) noexcept
      : is_on_{is_on}, has_management_port_{has_management_port}, tokens_{tokens} {}

  /// Describes the clients that may change the server.
  [[nodiscard]] std::string_view who_changes() const noexcept;
  /// Whether to refuse a request that changes the server.
  [[nodiscard]] std::optional<denial> change(const http_request& request) const;
  /// Whether to refuse a request that only programs on this machine may make. @param what In words.
  [[nodiscard]] static std::optional<denial> from_afar(const http_request& request,
                                                       std::string_view what);
  /// Whether to refuse a request of the management port that inspects the server.
  [[nodiscard]] std::optional<denial> look(const http_request& request) const;

 private:
  bool is_on_;
  bool has_management_port_;
  const key_ring& tokens_;
};

/// Whether a Host field is localhost or a loopback address, with or without a port. A foreign name
/// that resolves to this machine (DNS rebinding) is neither.
[[nodiscard]] bool is_loopback_host(std::string_view host);

}  // namespace cohort::serve
