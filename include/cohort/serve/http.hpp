// SPDX-License-Identifier: Apache-2.0
/// @file
/// HTTP/1.1 for the servers: whole requests in, whole or streamed answers out, and a drain.
#pragma once

#include <cohort/serve/byte_ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::serve {

/// How long a server waits for a client. In seconds, above 0.
struct http_timeouts {
  double header_s = 10;  ///< For a complete header, from its first byte or the connection's start.
  /// For the next request on a kept connection. Answers announce it (`Keep-Alive: timeout=`, in
  /// whole seconds); the connection is kept two seconds longer, for requests in time.
  double idle_s = 75;
  double read_s = 10;   ///< Without a byte of a body.
  double write_s = 10;  ///< Without the client taking a byte of its answer.
  /// Minimum average rate of both, in KiB per second, in addition to the limits above: see
  /// `connection_clock`. 0: none.
  double min_rate_kib = 16;
};

struct http_options {
  std::string name = "server";  ///< Name of the program, for log lines.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one.
  std::size_t header_limit = std::size_t{16} << 10U;
  std::size_t body_limit = std::size_t{16} << 20U;  ///< Limit of a body, as sent and decompressed.
  http_timeouts timeouts{};
  /// How long a drain waits for a request on a new connection, or one that has begun to arrive: an
  /// accepted client should be served, one that only holds a connection open should not.
  double drain_patience_s = 0.5;
  /// Bytes for the bodies of all requests that are arriving or being answered: those received and
  /// the memory for them, not announced ones. A quarter is divided evenly between all possible
  /// connections; larger bodies use the rest, and are answered 503 when that is used up. A single
  /// one may have more, up to `body_limit`.
  std::size_t max_body_bytes = std::size_t{256} << 20U;
  /// Bytes that bodies, answers and the app's reservations for them may hold in total; 0:
  /// `default_request_memory()`. A request without enough memory left is answered 429, one that
  /// needs more than the total 413.
  std::size_t max_held_bytes = 0;
  std::string held_bytes_option = "max_held_bytes";  ///< The users' name for that limit.
  /// Another 32 that were answered early may send the rest of their requests, unread.
  std::size_t max_connections = 1024;
  std::size_t probe_connections = 8;  ///< In addition, for probe paths.
  /// Seconds without progress by a client before its connection may have to make way: see
  /// `connection_places`.
  double slow_after_s = 1;
  std::size_t max_unsent = std::size_t{4} << 20U;  ///< Unread bytes of a stream, at most.
  bool is_management_port = false;                 ///< Copied into each request.
};

/// One request. Views are valid until its answer has begun; if the client has gone, while its
/// `http_client` is held.
struct http_request {
  std::string_view method;
  std::string_view path;  ///< Without scheme, host and query.
  std::string_view body;
  std::string_view authorization;
  std::string_view inference_header_length{};  ///< Inference-Header-Content-Length; empty: none.
  std::string_view host{};                     ///< The field Host; empty: none.
  std::string_view origin{};                   ///< Origin of a browser's page; empty: none.
  /// It comes from a loopback address, and no header says that a proxy forwarded it.
  bool is_local = false;
  bool is_on_management_port = false;

  /// GET, or HEAD, which is answered with the header only.
  [[nodiscard]] bool reads() const noexcept { return method == "GET" || method == "HEAD"; }
};

using http_fields = std::vector<std::pair<std::string, std::string>>;

/// A body that is written in pieces while its client takes it: a large answer then needs little
/// extra memory, and others are served in between. Used only on the server's thread, but may be
/// destroyed on any.
class http_body {
 public:
  http_body() = default;
  virtual ~http_body() = default;
  http_body(const http_body&) = delete;
  http_body& operator=(const http_body&) = delete;

  /// Its length in bytes; nothing if it is known only at the end.
  [[nodiscard]] virtual std::optional<std::size_t> size() const = 0;
  /// Appends the next piece, about `http_piece` bytes. @returns Whether there is more.
  virtual bool append_to(std::string& out) = 0;
};

/// Size of pieces of a body: about a millisecond's work when numbers become text.
inline constexpr std::size_t http_piece = std::size_t{64} << 10U;

struct http_reply {
  int status = 200;
  std::string body{};
  std::string type = "application/json";
  http_fields fields{};                 ///< Further header fields.
  std::shared_ptr<http_body> pieces{};  ///< If not null, the body in place of `body`.
  /// Whether to compress the body for clients with `Accept-Encoding: gzip` or `deflate`. Some
  /// clients always send that, but decompress only some kinds of answers.
  bool may_be_compressed = false;
};

/// The client of a request, until its answer has ended: call either `answer` once, or `begin`, any
/// number of `send`s and `end`. No effect after the client has gone. Only on the server's thread.
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
  /// Calls `gone`, once, if the client leaves before its answer has ended: it closed, does not
  /// acknowledge, or does not read. Discarded when the answer ends.
  virtual void on_gone(std::function<void()> gone) = 0;
  /// Whether the client no longer waits for an answer.
  [[nodiscard]] virtual bool is_gone() const { return false; }
};

/// The server limit that a request was refused for.
enum class http_bound : std::uint8_t {
  connections,  ///< `max_connections`.
  bodies,       ///< `max_body_bytes`.
  memory,       ///< `max_held_bytes`; answered 429, or 413 if it exceeds the total.
};

/// The application of a server. All calls come on the server's thread.
class http_app {
 public:
  http_app() = default;
  virtual ~http_app() = default;
  http_app(const http_app&) = delete;
  http_app& operator=(const http_app&) = delete;

  /// Returns the answer to a request refused for its header, if it is. Called before its body,
  /// which is then not read: the request has an empty one.
  [[nodiscard]] virtual std::optional<http_reply> early_answer(const http_request& /*request*/) {
    return std::nullopt;
  }
  /// Maximum body size of a request, by its header. @param usual `http_options::body_limit`.
  [[nodiscard]] virtual std::size_t body_limit(const http_request& /*head*/, std::size_t usual) {
    return usual;
  }
  /// Handles a request; must give one answer, now or later.
  virtual void asked(const http_request& request, const std::shared_ptr<http_client>& client) = 0;
  /// The body of the answer to an invalid request (JSON).
  virtual std::string error_body(int status, std::string_view message) = 0;
  /// Called when an answer with this status begins.
  virtual void answered(int status) = 0;
  /// Called if that answer is the server's own, for lack of room for the client.
  virtual void refused(http_bound /*full*/) {}
  /// A drain begins: no more connections are accepted, but requests of existing ones still arrive.
  virtual void draining() = 0;
  /// Whether a path is used by probes, which must be served even if all connections are taken.
  [[nodiscard]] virtual bool is_probe(std::string_view /*path*/) const { return false; }
};

/// Runs on one thread, that of `run`. Reads with limits and timeouts, decompresses bodies (gzip,
/// deflate), itself answers malformed, too large or too slow requests, keeps connections alive, and
/// detects clients that leave. Beyond `max_connections` it admits a few probes, preferring the
/// latest to silent ones; other clients are told that there are too many. If the system has no
/// descriptors left it reports so on standard error, at most once a minute, and keeps trying.
/// Exceptions of the app end here: the request is answered 500, or 503 if memory ran out, and its
/// connection closes, without an answer if `on_gone` was set; standard error reports it, and others
/// continue. Thread safety: `listen` and `run` from one thread each, the rest from any.
class http_server {
 public:
  explicit http_server(const http_options& o);
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Opens the port. @throws config_error If the host is neither an IP address nor localhost.
  /// @throws resource_error If it cannot listen, for example because the port is in use.
  void listen();
  /// The port listened on; callable from any thread, also while it is closed.
  [[nodiscard]] std::uint16_t port() const;
  /// The URL of the address and port listened on, such as `http://[::1]:8000`.
  [[nodiscard]] std::string url() const;
  /// Limits the connections served at one time, to 1 or more. Call it before `run`.
  void limit_connections(std::size_t most);
  [[nodiscard]] std::size_t max_connections() const noexcept;
  /// Maximum number of file descriptors that it opens at one time.
  [[nodiscard]] std::size_t max_descriptors() const noexcept;
  /// Serves until the end of a drain, or `stop`.
  void run(http_app& app);
  /// Sets `is_leaving`. Continues to serve, but each answer from now on closes its connection, so
  /// that clients reconnect elsewhere.
  void leave();
  /// Closes the port and serves the clients connected so far, including connections accepted only
  /// by the system. `run` returns when the last answer is sent, or after `within_s`, when
  /// connections are closed as they are.
  void drain(double within_s);
  /// Makes `run` return soon, whatever is in progress.
  void stop();
  [[nodiscard]] bool is_leaving() const noexcept;
  [[nodiscard]] bool is_draining() const noexcept;
  /// Whether its thread recently had almost no time left: see `busy_meter`. Only on its own thread.
  [[nodiscard]] bool is_busy();
  /// Requests with an answer in progress. After `run` has returned: those left unanswered.
  [[nodiscard]] std::size_t under_way() const noexcept;
  /// Memory held by bodies and answers, and the limit; reservations by the app are its own.
  [[nodiscard]] byte_ledger& memory() noexcept;
  /// Why so many more bytes are not available: status 413 if they never are, else 429.
  [[nodiscard]] std::pair<int, std::string> why_no_memory(std::size_t bytes) const;
  /// Calls `work` on the server's thread, soon; never after `run` has returned. Its exceptions are
  /// printed.
  void post(std::function<void()> work);

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace cohort::serve
