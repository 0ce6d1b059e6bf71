// SPDX-License-Identifier: Apache-2.0
/// @file
/// Runs a server from its first probe to its exit: loading, ready, leaving and draining, even if
/// devices hang.
#pragma once

#include <cohort/serve/http.hpp>
#include <cohort/serve/key_ring.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::serve {

/// Exit status of a server that left requests unanswered, or hung devices or loads.
inline constexpr int exit_left_requests = 3;

/// Takes the answer to a request, once, on any thread.
using http_answer = std::function<void(http_reply)>;

/// The application's answers on the management port and at shutdown. Called on threads of
/// `server_life`, at any time between `begin` and the release in `end`.
class managed {
 public:
  /// 200 while the process works, even while it loads.
  [[nodiscard]] virtual http_reply live() = 0;
  /// 200 if it accepts requests and should get more, else 503.
  [[nodiscard]] virtual http_reply ready() = 0;
  /// In the text format of Prometheus. Must not wait for a device indefinitely.
  [[nodiscard]] virtual http_reply metrics() = 0;
  /// Number of devices known to hang. Must not wait for one.
  [[nodiscard]] virtual std::size_t hanging_devices() { return 0; }
  /// Number of abandoned loads of models that have not ended. Must not wait.
  [[nodiscard]] virtual std::size_t hanging_loads() { return 0; }
  /// Called once, in `end`: waits briefly for loads that the drain has abandoned.
  virtual void await_loads() {}
  /// Like `http_app::early_answer`, for requests to `manage`. One function may override both.
  [[nodiscard]] virtual std::optional<http_reply> early_answer(const http_request& /*request*/) {
    return std::nullopt;
  }
  /// Like `http_app::body_limit`, for requests to `manage`. One function may override both.
  [[nodiscard]] virtual std::size_t body_limit(const http_request& /*request*/, std::size_t usual) {
    return usual;
  }
  /// Answers any other path of the management port; by default there is none. @param request Its
  /// views are valid until this returns.
  virtual void manage(const http_request& request, http_answer answer);

 protected:
  ~managed() = default;
};

/// The page of `managed` for a path of the management port: live, ready or metrics, under the names
/// used by each of our servers, and short ones.
enum class managed_page : std::uint8_t { none, live, ready, metrics };
[[nodiscard]] managed_page page_at(std::string_view path) noexcept;

struct life_options {
  std::string name = "server";  ///< Name of the program, for log lines.
  std::string host = "127.0.0.1";
  std::optional<std::uint16_t> management_port{};  ///< 0: any free one. Empty: no such port.
  double lame_duck_s = 1;       ///< Part of the drain's time, after SIGTERM only; 0: none.
  double drain_timeout_s = 10;  ///< From the signal to the end of the last connection.
  double end_patience_s = 0.5;  ///< Then for devices and threads, before the process exits.
  std::size_t more_files = 0;   ///< Files that clients may make it open, beside connections.
  /// Must outlive the life. SIGHUP rereads the files of those that have one; it never ends the
  /// process.
  std::vector<key_ring*> keys{};
};

/// Runs an http_server on its own thread, from before its models are loaded to the end of its
/// drain, and a management port on another thread. A third thread waits for signals and ends the
/// process if nothing else does: it waits for no device.
///
/// The process's limit of open files is raised for both ports, `more_files` and 128 files. If that
/// is not permitted the service has fewer connections, at least one, which a line on standard error
/// reports; the management port keeps its own.
///
/// The first SIGTERM or SIGINT begins shutdown: a lame-duck phase, in which the server is not ready
/// but still serves, so that load balancers can stop sending; then the drain. A second signal ends
/// the process at once, as does the first one while the server starts.
///
/// The last line printed is always `drained`, or the number of requests, hung devices and hung
/// loads left. If any were left, the exit status is `exit_left_requests`, else 0. From then on the
/// process ignores these signals.
class server_life {
 public:
  /// Opens both ports. @param service, app, pages Must outlive it. @throws As
  /// `http_server::listen`.
  server_life(http_server& service, http_app& app, managed& pages, const life_options& o);
  /// If it has not ended, stops it at once.
  ~server_life();
  server_life(const server_life&) = delete;
  server_life& operator=(const server_life&) = delete;

  /// Starts answering probes: live, and not ready.
  void begin();
  /// Runs `start` on the server's thread, then becomes ready.
  void become_ready(const std::function<void()>& start);
  /// Waits until the last answer is sent, or no more may be.
  void wait();
  /// After `wait`: calls `release` to destroy the application, which is no longer asked, as the
  /// pages of the management port are frozen, and prints one line with what was left. Before that,
  /// pending `managed::manage` requests are answered with `managed::ready`, and have
  /// `end_patience_s` to take it. If a device or a load hangs, which `release` might wait for, the
  /// process exits instead; likewise if `release` has not returned `end_patience_s` after the
  /// drain's time, which counts as a hung device.
  /// @returns The exit status of the process: 0, or `exit_left_requests`.
  int end(const std::function<void()>& release);
  /// For the ready line: ` management http://HOST:PORT`, or nothing.
  [[nodiscard]] std::string management_url() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace cohort::serve
