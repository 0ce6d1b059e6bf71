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
  double header_s = 10;  ///< For all of a header, from its first byte or the connection's start.
  /// For the next request on a kept connection. Answers tell clients so (`Keep-Alive: timeout=`, in
  /// whole seconds); the connection is kept two seconds longer, so that a request in time is taken.
  double idle_s = 75;
  double read_s = 10;   ///< For a body without any byte of it.
  double write_s = 10;  ///< For a client that takes nothing of its answer.
  /// Least average rate of both, in KiB a second, beside the time above: see `connection_clock`.
  /// 0: none.
  double min_rate_kib = 16;
};

struct http_options {
  std::string name = "server";  ///< Of the program, in each line that is logged.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one.
  std::size_t header_limit = std::size_t{16} << 10U;
  std::size_t body_limit = std::size_t{16} << 20U;  ///< As sent, and decompressed.
  http_timeouts timeouts{};
  /// How long a drain waits for a request whose connection has just come, or that has begun to: a
  /// client that was let in should be served, one that only holds a connection open should not.
  double drain_patience_s = 0.5;
  /// Bytes of the bodies of all requests that are arriving or being answered: what has come and the
  /// memory made for it, not what is announced. A quarter is shared out evenly to all connections
  /// that may be; who needs more takes it from the rest, and is answered 503 when that is used up.
  /// One alone may have more, up to `body_limit`.
  std::size_t max_body_bytes = std::size_t{256} << 20U;
  /// Bytes that bodies, answers and what the app reserves for them may hold in all; 0:
  /// `default_request_memory()`. A request that finds too few left is answered 429, one that needs
  /// more than all of them 413.
  std::size_t max_held_bytes = 0;
  std::string held_bytes_option = "max_held_bytes";  ///< What users call that limit.
  /// Beside these, 32 that were answered before they had sent all may send the rest, unread.
  std::size_t max_connections = 1024;
  std::size_t probe_connections = 8;  ///< Beyond these, for paths that are probes.
  /// How long a client must have sent or taken nothing, in seconds, before its connection may have
  /// to make way: see `connection_places`.
  double slow_after_s = 1;
  std::size_t max_unsent = std::size_t{4} << 20U;  ///< Bytes of a stream that a client leaves.
  bool is_management_port = false;                 ///< Each request says so.
};

/// One request. Views are valid until its answer has begun; where the client has gone, as long as
/// its `http_client` is held.
struct http_request {
  std::string_view method;
  std::string_view path;  ///< Without scheme, host and query.
  std::string_view body;
  std::string_view authorization;
  std::string_view inference_header_length{};  ///< Inference-Header-Content-Length; empty: none.
  std::string_view host{};                     ///< The field Host; empty: none.
  std::string_view origin{};                   ///< Of the browser's page that asks; empty: none.
  /// It comes from an address of loopback, and does not say that a proxy has passed it on.
  bool is_local = false;
  bool is_on_management_port = false;

  /// GET, or HEAD, which is answered by the head alone.
  [[nodiscard]] bool reads() const noexcept { return method == "GET" || method == "HEAD"; }
};

using http_fields = std::vector<std::pair<std::string, std::string>>;

/// A body that is written in pieces while its client takes it: a large answer then takes little
/// memory beside what it is made of, and others are served in between. Only on the server's thread,
/// but destroyed on any.
class http_body {
 public:
  http_body() = default;
  virtual ~http_body() = default;
  http_body(const http_body&) = delete;
  http_body& operator=(const http_body&) = delete;

  /// Its length in bytes; nothing if it is known only at the end.
  [[nodiscard]] virtual std::optional<std::size_t> size() const = 0;
  /// Appends the next piece, about `http_piece` bytes. @returns Whether there are more.
  virtual bool append_to(std::string& out) = 0;
};

/// Of a body that is written in pieces: about a millisecond's work where numbers become text.
inline constexpr std::size_t http_piece = std::size_t{64} << 10U;

struct http_reply {
  int status = 200;
  std::string body{};
  std::string type = "application/json";
  http_fields fields{};                 ///< More of the header.
  std::shared_ptr<http_body> pieces{};  ///< If not null, the body in place of `body`.
  /// Whether to compress the body for clients with `Accept-Encoding: gzip` or `deflate`. Some send
  /// that always, but decompress some kinds of answers only.
  bool may_be_compressed = false;
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
  memory,       ///< `max_held_bytes`; answered 429, or 413 if it needs more than all.
};

/// What a server does. All calls come on the server's thread.
class http_app {
 public:
  http_app() = default;
  virtual ~http_app() = default;
  http_app(const http_app&) = delete;
  http_app& operator=(const http_app&) = delete;

  /// The answer to a request that is refused for its header; nothing: it is not. Called before its
  /// body is read, which then is not: the request has an empty one.
  [[nodiscard]] virtual std::optional<http_reply> early_answer(const http_request& /*request*/) {
    return std::nullopt;
  }
  /// The largest body of a request, by its header. @param usual `http_options::body_limit`.
  [[nodiscard]] virtual std::size_t body_limit(const http_request& /*head*/, std::size_t usual) {
    return usual;
  }
  /// Must lead to one answer, now or later.
  virtual void asked(const http_request& request, const std::shared_ptr<http_client>& client) = 0;
  /// The body of an answer to what is no valid request (JSON).
  virtual std::string error_body(int status, std::string_view message) = 0;
  /// An answer of this status begins.
  virtual void answered(int status) = 0;
  /// That answer is one of the server's own, as there is no room for the client.
  virtual void refused(http_bound /*full*/) {}
  /// A drain begins: no more connections come, but requests of those that are there still do.
  virtual void draining() = 0;
  /// Whether a path is one that probes ask for, whom nobody else's connections may keep out.
  [[nodiscard]] virtual bool is_probe(std::string_view /*path*/) const { return false; }
};

/// One thread, that of `run`. Reads with limits and timeouts, decompresses bodies (gzip, deflate),
/// answers what is malformed, too large or too slow itself, keeps connections alive, notices
/// clients that go. Beyond `max_connections` it lets in a few that ask for a probe, the latest of
/// them rather than who says nothing; others are told that they are too many. Where the system has
/// no descriptors left it says so on standard error, at most once a minute, and goes on trying.
/// What the app throws ends at this server: the request is answered 500, or 503 for want of memory,
/// and its connection closes, without an answer if `on_gone` was asked for; standard error says so,
/// and others go on. Thread safety: `listen` and `run` from one thread each, the rest from any.
class http_server {
 public:
  explicit http_server(const http_options& o);
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  /// Opens the port. @throws config_error If the host is neither an IP address nor localhost.
  /// @throws resource_error If it cannot be listened on, as it is in use.
  void listen();
  /// The one listened on; any thread may ask, also while it is closed.
  [[nodiscard]] std::uint16_t port() const;
  /// Of the address and port listened on, as in `http://[::1]:8000`.
  [[nodiscard]] std::string url() const;
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
  /// What bodies and answers hold at present, and the limit; the app's reservations are its own.
  [[nodiscard]] byte_ledger& memory() noexcept;
  /// Why there is no room for so many bytes more: status 413 if there never is, else 429.
  [[nodiscard]] std::pair<int, std::string> why_no_memory(std::size_t bytes) const;
  /// Calls `work` on the server's thread, soon; never once `run` has returned. What it throws is
  /// printed.
  void post(std::function<void()> work);

  struct state;

 private:
  std::unique_ptr<state> state_;
};

}  // namespace cohort::serve
