// SPDX-License-Identifier: Apache-2.0
/// @file
/// Who may change a server over HTTP, and who may look into it: `control_gate`.
#pragma once

#include <cohort/serve/http.hpp>
#include <cohort/serve/key_ring.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace cohort::serve {

/// Why a call is refused, and how it can be made.
struct denial {
  int status;  ///< 401, 403 or 404.
  std::string why;
};

/// Decides by the header of a request. With a token file, whoever shows a token may change the
/// server, on any port. Without one, calls that change it are taken on the management port alone,
/// from this machine, and from no page of a browser. Thread safety: any thread.
class control_gate {
 public:
  /// @param is_on If not, nobody may change the server.
  /// @param tokens Of the token file; empty: there is none. Outlives this.
  control_gate(bool is_on, const key_ring& tokens, bool has_management_port) noexcept
      : is_on_{is_on}, has_management_port_{has_management_port}, tokens_{tokens} {}

  /// Who may change the server, for people.
  [[nodiscard]] std::string_view who_changes() const noexcept;
  /// Whether a request that changes the server is refused.
  [[nodiscard]] std::optional<denial> change(const http_request& request) const;
  /// Whether a request is refused that only programs on this machine may make. @param what In
  /// words.
  [[nodiscard]] static std::optional<denial> from_afar(const http_request& request,
                                                       std::string_view what);
  /// Whether a request of the management port that looks into the server is refused.
  [[nodiscard]] std::optional<denial> look(const http_request& request) const;

 private:
  bool is_on_;
  bool has_management_port_;
  const key_ring& tokens_;
};

/// Whether a Host field is localhost or an address of loopback, with a port or without. A name that
/// somebody else resolves to this machine (DNS rebinding) is neither.
[[nodiscard]] bool is_loopback_host(std::string_view host);

}  // namespace cohort::serve
