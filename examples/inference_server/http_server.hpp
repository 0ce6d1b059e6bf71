// SPDX-License-Identifier: Apache-2.0
/// @file
/// The HTTP side of the inference server.
#pragma once

#include <string>

#include "options.hpp"
#include "service.hpp"

namespace cohort::server {

/// Serves until SIGTERM or SIGINT, then drains and returns the exit status. Prints one line when it
/// is ready and one when it ends. All HTTP runs on the calling thread.
class http_server final : public outcome_listener {
 public:
  explicit http_server(const options& o);
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Opens the port. @throws config_error If it cannot be listened on.
  void listen();
  /// @param s Has this server as its listener.
  int run(service& s, serve::metrics& counters);

  void ended(engine::tensor_request& r, outcome how) noexcept override;

  struct state;

 private:
  state* state_;
};

}  // namespace cohort::server
