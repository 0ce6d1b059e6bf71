// SPDX-License-Identifier: Apache-2.0
/// @file
/// HTTP/1.1 for the servers: whole requests in, whole or streamed answers out, and a drain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::serve {

struct http_options {
  std::string name = "server";  ///< Of the program, in each line that is logged.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one.
  std::size_t header_limit = std::size_t{16} << 10U;
  std::size_t body_limit = std::size_t{16} << 20U;
  double read_timeout_s = 10;   ///< For a client to send a request.
  double write_timeout_s = 10;  ///< For a client to take what is sent.
  /// How long a drain waits for a request whose connection has just come, or that has begun to: a
  /// client that was let in should be served, one that only holds a connection open should not.
  double drain_patience_s = 0.5;
  /// Bytes of the bodies of all requests that are arriving or being answered: what has come and the
  /// memory made for it, not what is announced. A quarter is shared out evenly to all connections
  /// that may be; who needs more takes it from the rest, and is answered 503 when that is used up.
  /// One alone may have more, up to `body_limit`.
  std::size_t max_body_bytes = std::size_t{256} << 20U;
  /// Beside these, 32 that were answered before they had sent all may send the rest, unread.
  std::size_t max_connections = 1024;
  std::size_t probe_connections = 8;               ///< Beyond these, for paths that are probes.
  std::size_t max_unsent = std::size_t{4} << 20U;  ///< Bytes of a stream that a client leaves.
};

/// One request. Views are valid until its answer has begun; where the client has gone, as long as
/// its `http_client` is held.
struct http_request {
  std::string_view method;
  std::string_view path;  ///< Without scheme, host and query.
  std::string_view body;
  std::string_view authorization;
  std::string_view inference_header_length{};  ///< Inference-Header-Content-Length; empty: none.

  /// GET, or HEAD, which is answered by the head alone.
  [[nodiscard]] bool reads() const noexcept { return method == "GET" || method == "HEAD"; }
};

using http_fields = std::vector<std::pair<std::string, std::string>>;

struct http_reply {
  int status = 200;
  std::string body{};
  std::string type = "application/json";
  http_fields fields{};  ///< More of the header.
};

/// Who asked, until the answer has ended: either `answer` once, or `begin`, any number of `send`s
/// and `end`. Nothing happens after the client has gone. Only on the server's thread.
class http_client {
 public:
  http_client() = default;
  virtual ~http_client() = default;
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  virtual void answer(http_reply reply) = 0;
  /// Begins a streamed answer with status 200.
  virtual void begin(const std::string& type) = 0;
  virtual void send(std::string_view bytes) = 0;
  virtual void end() = 0;
  /// Calls `gone`, once, if the client leaves before its answer has ended: it closed, sends no
  /// acknowledgements, or does not read. Forgotten when the answer ends.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// Whether nobody waits for an answer any more.
  [[nodiscard]] virtual bool is_gone() const { return false; }
};

/// Which bound of the server itself a request was refused for.
enum class http_bound : std::uint8_t {
  connections,  ///< `max_connections`.
  bodies,       ///< `max_body_bytes`.
};

/// What a server does. All calls come on the server's thread.
class http_app {
 public:
  http_app() = default;
  virtual ~http_app() = default;
  http_app(const http_app&) = delete;
  http_app& operator=(const http_app&) = delete;

  /// Must lead to one answer, now or later.
  virtual void asked(const http_request& request, const std::shared_ptr<http_client>& client) = 0;
  /// The body of an answer to what is no valid request (JSON).
  virtual std::string error_body(int status, std::string_view message) = 0;
  /// An answer of this status begins.
  virtual void answered(int status) = 0;
  /// That answer is one of the server's own, 503, as there is no room for the client.
  virtual void refused(http_bound /*full*/) {}
  /// A drain begins: no more connections come, but requests of those that are there still do.
  virtual void draining() = 0;
  /// Whether a path is one that probes ask for, whom nobody else's connections may keep out.
  [[nodiscard]] virtual bool is_probe(std::string_view /*path*/) const { return false; }
};

/// One thread, that of `run`. Reads with limits and timeouts, answers what is malformed, too large
/// or too slow itself, keeps connections alive, notices clients that go. Beyond `max_connections`
/// it lets in a few that ask for a probe, the latest of them rather than who says nothing; others
/// are told that they are too many. Where the system has no descriptors left it says so on standard
/// error, at most once a minute, and goes on trying. Thread safety: `listen` and `run` from one
/// thread each, the rest from any.
class http_server {
 public:
  explicit http_server(const http_options& o);
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Opens the port. @throws config_error If the host is not an IP address.
  /// @throws resource_error If it cannot be listened on, as it is in use.
  void listen();
  /// The one listened on; any thread may ask, also while it is closed.
  [[nodiscard]] std::uint16_t port() const;
  /// Serves at most so many connections at one time, 1 or more. Before `run`.
  void limit_connections(std::size_t most);
  [[nodiscard]] std::size_t max_connections() const noexcept;
  /// File descriptors that it may have open at one time.
  [[nodiscard]] std::size_t max_descriptors() const noexcept;
  /// Serves until the end of a drain, or `stop`.
  void run(http_app& app);
  /// From now on it `is_leaving`. Goes on serving, but asks clients to come back on other
  /// connections: each answer from now on closes its own.
  void leave();
  /// Serves whoever has connected until now, and closes the port: connections that the system has
  /// taken and nobody read are read and answered. `run` returns when the last answer is sent, or
  /// `within_s` from now, when connections are closed as they are.
  void drain(double within_s);
  /// `run` returns soon, whatever is under way.
  void stop();
  [[nodiscard]] bool is_leaving() const noexcept;
  [[nodiscard]] bool is_draining() const noexcept;
  /// Whether its thread lately had next to no time left: see `busy_meter`. For its own thread.
  [[nodiscard]] bool is_busy();
  /// Requests whose answer is being made or sent. Once `run` has returned: that were left so.
  [[nodiscard]] std::size_t under_way() const noexcept;
  /// Calls `work` on the server's thread, soon; never once `run` has returned.
  void post(std::function<void()> work);

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace cohort::serve
