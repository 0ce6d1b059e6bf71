// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server from its first probe to its exit: loading, ready, leaving, draining, whatever hangs.
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

/// Exit status of a server that left requests unanswered, or devices or loads that hang.
inline constexpr int exit_left_requests = 3;

/// Takes the answer to a request, once, on any thread.
using http_answer = std::function<void(http_reply)>;

/// What is asked on the management port, and what the end asks. Called on threads of
/// `server_life`, at any time after it has begun, and not once `end` releases.
class managed {
 public:
  /// 200 while the process is of use, also while it loads.
  [[nodiscard]] virtual http_reply live() = 0;
  /// 200 if it takes requests and is to get more of them, else 503.
  [[nodiscard]] virtual http_reply ready() = 0;
  /// In the text format of Prometheus. Must not wait for a device without limit.
  [[nodiscard]] virtual http_reply metrics() = 0;
  /// How many devices do not come back from what they were sent, as far as that is known. Must not
  /// wait for one.
  [[nodiscard]] virtual std::size_t hanging_devices() { return 0; }
  /// How many loads of models have not ended though they were given up. Must not wait.
  [[nodiscard]] virtual std::size_t hanging_loads() { return 0; }
  /// Once, in `end`: waits a moment for loads that the drain has given up.
  virtual void await_loads() {}
  /// As `http_app::early_answer`, for requests to `manage`. One function may override both.
  [[nodiscard]] virtual std::optional<http_reply> early_answer(const http_request& /*request*/) {
    return std::nullopt;
  }
  /// As `http_app::body_limit`, for the same. One function may override both.
  [[nodiscard]] virtual std::size_t body_limit(const http_request& /*request*/, std::size_t usual) {
    return usual;
  }
  /// Any other path of the management port; by itself there is none. @param request Its views are
  /// valid until this returns.
  virtual void manage(const http_request& request, http_answer answer);

 protected:
  ~managed() = default;
};

/// Which of the pages of `managed` a path of the management port is: live, ready or metrics, under
/// the names that each of our servers has for it, and short ones.
enum class managed_page : std::uint8_t { none, live, ready, metrics };
[[nodiscard]] managed_page page_at(std::string_view path) noexcept;

struct life_options {
  std::string name = "server";  ///< Of the program, in each line that is logged.
  std::string host = "127.0.0.1";
  std::optional<std::uint16_t> management_port{};  ///< 0: any free one. None: there is none.
  double lame_duck_s = 1;       ///< Of the drain's time, after SIGTERM; 0: none. Not after SIGINT.
  double drain_timeout_s = 10;  ///< From the signal to the end of the last connection.
  double end_patience_s = 0.5;  ///< From then on for devices and threads, before the process exits.
  std::size_t more_files = 0;   ///< Files that clients may have it open, beside connections.
  /// Outlive the life. SIGHUP reads the files of those that have one again; it never ends the
  /// process.
  std::vector<key_ring*> keys{};
};

/// Runs an http_server on a thread of its own, from before its models are loaded to the end of its
/// drain, and a management port on another. A third thread waits for signals and ends the process
/// if nobody else does: it waits for no device.
///
/// The process's limit of open files is raised to what both ports, `more_files` and 128 files need.
/// Where that is not allowed the service has fewer connections, at least one, and a line on
/// standard error says so: so many clients as there may be leave the management port its own.
///
/// The first SIGTERM or SIGINT begins the end: a lame-duck phase, in which the server is not ready
/// any more but serves, so that whoever sends it requests can stop to; then the drain. The second
/// one is the end. While the server starts already the first is.
///
/// However it ends, the last line that it prints is `drained`, or says how many requests, and how
/// many devices and loads that hang, were left. If any were, the exit status is
/// `exit_left_requests`, else 0.
/// From then on the process ignores these signals: it is to end.
class server_life {
 public:
  /// Opens both ports. @param service, app, pages Outlive it. @throws As `http_server::listen`.
  server_life(http_server& service, http_app& app, managed& pages, const life_options& o);
  /// If it has not ended, stops it as it is.
  ~server_life();
  server_life(const server_life&) = delete;
  server_life& operator=(const server_life&) = delete;

  /// Probes are answered from now on: live, and not ready.
  void begin();
  /// Has `start` run on the server's thread, and is ready.
  void become_ready(const std::function<void()>& start);
  /// Until the last answer is sent, or no more may be.
  void wait();
  /// After `wait`: has `release` destroy what answered, which nobody asks any more, as the pages of
  /// the management port stay as they are, and says in one line what was left. Before that, who
  /// waits for `managed::manage` is answered as by `managed::ready`, and has `end_patience_s` to
  /// take it. If a device or a load hangs, which `release` might wait for, the
  /// process exits instead; so it does if `release` has not returned `end_patience_s` after the
  /// drain's time: what it waits for then counts as a device that hangs.
  /// @returns What the process should exit with: 0, or `exit_left_requests`.
  int end(const std::function<void()>& release);
  /// That of the management port, for the ready line: ` management http://HOST:PORT`, or nothing.
  [[nodiscard]] std::string management_url() const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace cohort::serve
