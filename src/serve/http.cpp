// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>
#include <cohort/serve/http.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <unordered_set>

namespace cohort::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

class session;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1e3)};
}

}  // namespace

struct http_server::state {
  explicit state(http_options o)
      : settings{std::move(o)},
        context{1},
        acceptor{context},
        signals{context},
        drain_timer{context},
        accept_timer{context} {}

  void accept();
  void begin_drain(int signal);
  void maybe_stop();
  [[nodiscard]] std::vector<std::shared_ptr<session>> everyone() const;

  http_options settings;
  std::unordered_set<session*> sessions;  // Handlers that the context still has hold some.
  asio::io_context context;
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer drain_timer;
  asio::steady_timer accept_timer;
  http_app* app = nullptr;
  bool draining = false;
};

namespace {

/// One connection: reads a request, has it answered, reads the next.
class session final : public http_client, public std::enable_shared_from_this<session> {
 public:
  session(tcp::socket socket, http_server::state& server)
      : stream_{std::move(socket)}, arrival_{stream_.get_executor()}, server_{server} {
    server_.sessions.insert(this);
    beast::error_code ignored;
    stream_.socket().set_option(tcp::no_delay{true}, ignored);
  }
  ~session() override { server_.sessions.erase(this); }

  void read() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.settings.header_limit));
    parser_->body_limit(server_.settings.body_limit);
    phase_ = phase::idle;
    expect_request();
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code e, std::size_t) { self->on_header(e); });
  }

  /// Answers a connection that is one too many, and closes it.
  void turn_away() { refuse(http::status::service_unavailable, "too many connections", 1); }

  /// Closes a connection on which no request has arrived yet.
  void close_if_idle() {
    if (phase_ == phase::idle) shut();
  }
  /// Whether an answer is being made.
  [[nodiscard]] bool is_asked() const noexcept {
    return phase_ == phase::asked || phase_ == phase::streaming;
  }
  void close_now() {
    lose();
    shut();
  }

  void answer(http_reply r) override {
    if (phase_ != phase::asked) return;
    phase_ = phase::answering;
    gone_ = nullptr;
    server_.app->answered(r.status);
    reply_.emplace(static_cast<http::status>(r.status), version_);
    reply_->set(http::field::server, std::string{"cohort/"} + version_string);
    reply_->set(http::field::content_type, r.type);
    for (const auto& [name, value] : r.fields) reply_->set(name, value);
    reply_->body() = std::move(r.body);
    reply_->keep_alive(keep_alive_ && !server_.draining);
    const std::size_t length = reply_->body().size();
    if (head_only_) reply_->body().clear();
    reply_->content_length(length);
    stream_.expires_after(milliseconds_of(server_.settings.write_timeout_s));
    serializer_.emplace(*reply_);
    const auto done = [self = shared_from_this()](beast::error_code e, std::size_t) {
      self->on_written(e);
    };
    if (head_only_) {
      http::async_write_header(stream_, *serializer_, done);
    } else {
      http::async_write(stream_, *serializer_, done);
    }
  }

  void begin(const std::string& type) override {
    if (phase_ != phase::asked) return;
    phase_ = phase::streaming;
    server_.app->answered(200);
    is_chunked_ = version_ >= 11;  // Else the end of the connection ends the body.
    if (!is_chunked_) keep_alive_ = false;
    unsent_ += fmt::format(
        "HTTP/1.{} 200 OK\r\nServer: cohort/{}\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n"
        "{}{}\r\n",
        version_ % 10, version_string, type, is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
        keep_alive_ && !server_.draining ? "" : "Connection: close\r\n");
    pump();
  }
  void send(std::string_view bytes) override {
    if (phase_ != phase::streaming || bytes.empty()) return;
    if (unsent_.size() + bytes.size() > server_.settings.max_unsent) {  // It does not read.
      lose();
      return shut();
    }
    if (is_chunked_) unsent_ += fmt::format("{:x}\r\n", bytes.size());
    unsent_ += bytes;
    if (is_chunked_) unsent_ += "\r\n";
    pump();
  }
  void end() override {
    if (phase_ != phase::streaming) return;
    phase_ = phase::answering;
    gone_ = nullptr;
    if (is_chunked_) unsent_ += "0\r\n\r\n";
    pump();
  }
  void on_gone(std::function<void()> gone) override {
    if (is_asked()) {
      gone_ = std::move(gone);
    } else {
      gone();
    }
  }

 private:
  enum class phase : std::uint8_t {
    idle,       // No header has arrived.
    arriving,   // Nor the body.
    asked,      // The app is to answer.
    streaming,  // It does.
    answering,  // What is left is to be sent.
    closed,
  };

  /// A stream's own timeout would close it, and the client would not learn why.
  void expect_request() {
    is_overdue_ = false;
    has_arrived_ = false;
    arrival_.expires_after(milliseconds_of(server_.settings.read_timeout_s));
    arrival_.async_wait([self = shared_from_this()](beast::error_code e) {
      if (e || self->has_arrived_) return;
      self->is_overdue_ = true;
      self->stream_.cancel();
    });
  }
  void request_arrived() {
    has_arrived_ = true;  // The timer may have fired already, its handler not yet run.
    arrival_.cancel();
  }

  void shut() {
    phase_ = phase::closed;
    request_arrived();
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  /// The client is gone: its request need not run.
  void lose() {
    if (is_asked()) phase_ = phase::closed;
    if (auto gone = std::exchange(gone_, nullptr)) gone();
  }

  void refuse(http::status status, std::string_view message,
              std::optional<unsigned> retry_after = {}) {
    request_arrived();
    keep_alive_ = false;  // What follows in the stream cannot be told from the bad request.
    phase_ = phase::asked;
    http_reply r{.status = static_cast<int>(status),
                 .body = server_.app->error_body(static_cast<int>(status), message)};
    if (retry_after) r.fields.emplace_back("Retry-After", std::to_string(*retry_after));
    answer(std::move(r));
  }

  /// Answers what is wrong with the bytes, or closes if nobody waits for it.
  void on_bad_read(beast::error_code e) {
    if (e == http::error::header_limit) {
      return refuse(http::status::request_header_fields_too_large,
                    fmt::format("the header is over {} bytes", server_.settings.header_limit));
    }
    if (e == http::error::body_limit) {
      return refuse(http::status::payload_too_large,
                    fmt::format("the body is over {} bytes", server_.settings.body_limit));
    }
    if (e == asio::error::operation_aborted && is_overdue_) {
      // A connection kept open without a request is no fault.
      if (!parser_->got_some() && buffer_.size() == 0) return shut();
      return refuse(http::status::request_timeout, "the request did not arrive in time");
    }
    if (e == http::error::end_of_stream || e == http::error::partial_message) return shut();
    if (e.category() == http::make_error_code(http::error::bad_method).category()) {
      return refuse(http::status::bad_request, fmt::format("not valid HTTP: {}", e.message()));
    }
    shut();
  }

  void on_header(beast::error_code e) {
    if (phase_ == phase::closed) return;
    if (e) return on_bad_read(e);
    phase_ = phase::arriving;
    const auto& request = parser_->get();
    version_ = request.version();
    keep_alive_ = request.keep_alive();
    head_only_ = request.method() == http::verb::head;
    if (const auto length = parser_->content_length();
        length && *length > server_.settings.body_limit) {
      return on_bad_read(http::make_error_code(http::error::body_limit));
    }
    if (version_ >= 11 && request.count(http::field::host) != 1) {
      return refuse(http::status::bad_request, "expected one Host field");
    }
    if (request.count(http::field::transfer_encoding) > 0 &&
        !beast::iequals(request[http::field::transfer_encoding], "chunked")) {
      return refuse(http::status::not_implemented, "Transfer-Encoding: only chunked is understood");
    }
    if (request.count(http::field::content_encoding) > 0 &&
        !beast::iequals(request[http::field::content_encoding], "identity")) {
      return refuse(http::status::unsupported_media_type,
                    "Content-Encoding: only identity is understood");
    }
    if (request.count(http::field::expect) > 0 &&
        !beast::iequals(request[http::field::expect], "100-continue")) {
      return refuse(http::status::expectation_failed, "Expect: only 100-continue is understood");
    }
    if (request.count(http::field::expect) > 0) {
      go_on_.emplace(http::status::continue_, version_);
      http::async_write(stream_, *go_on_,
                        [self = shared_from_this()](beast::error_code error, std::size_t) {
                          if (error) return self->shut();
                          self->read_body();
                        });
      return;
    }
    read_body();
  }

  void read_body() {
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code e, std::size_t) {
                       if (self->phase_ == phase::closed) return;
                       if (e) return self->on_bad_read(e);
                       self->request_arrived();
                       self->ask();
                     });
  }

  void ask() {
    phase_ = phase::asked;
    const auto& request = parser_->get();
    const auto view = [](auto text) { return std::string_view{text.data(), text.size()}; };
    std::string_view path = view(request.target());
    if (path.starts_with("http://")) {  // The absolute form, which proxies send.
      path.remove_prefix(std::min(path.size(), path.find('/', 7)));
    }
    path = path.substr(0, path.find('?'));
    server_.app->asked({.method = view(request.method_string()),
                        .path = path,
                        .body = request.body(),
                        .authorization = view(request[http::field::authorization])},
                       shared_from_this());
    if (is_asked()) watch();
  }

  /// Notices that the client goes away while its answer is being made.
  void watch() {
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](beast::error_code e) {
                                  if (e || !self->is_asked()) return;
                                  char byte = 0;
                                  beast::error_code error;
                                  const std::size_t got = self->stream_.socket().receive(
                                      asio::buffer(&byte, 1), tcp::socket::message_peek, error);
                                  // More bytes are a pipelined request, which waits for its turn.
                                  if (got == 0 && error != asio::error::would_block) {
                                    self->lose();
                                    self->shut();
                                  }
                                });
  }

  /// Sends what there is of a stream, one write at a time.
  void pump() {
    if (!sending_.empty() || unsent_.empty()) return;
    sending_.swap(unsent_);
    stream_.expires_after(milliseconds_of(server_.settings.write_timeout_s));
    asio::async_write(stream_, asio::buffer(sending_),
                      [self = shared_from_this()](beast::error_code e, std::size_t) {
                        self->sending_.clear();
                        if (self->phase_ == phase::closed) return;
                        if (e) {
                          self->lose();
                          return self->shut();
                        }
                        if (!self->unsent_.empty()) return self->pump();
                        self->stream_.expires_never();
                        if (self->phase_ == phase::answering) self->on_written({});
                      });
  }

  void on_written(beast::error_code e) {
    if (phase_ == phase::closed) return;
    stream_.expires_never();
    reply_.reset();
    if (e || !keep_alive_ || server_.draining) {
      shut();
      server_.maybe_stop();
      return;
    }
    read();
  }

  beast::tcp_stream stream_;
  asio::steady_timer arrival_;  // Until the request has arrived.
  http_server::state& server_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> reply_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::optional<http::response<http::empty_body>> go_on_;
  std::function<void()> gone_;
  std::string unsent_;
  std::string sending_;
  unsigned version_ = 11;
  phase phase_ = phase::idle;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool is_chunked_ = false;
  bool has_arrived_ = false;
  bool is_overdue_ = false;
};

}  // namespace

std::vector<std::shared_ptr<session>> http_server::state::everyone() const {
  std::vector<std::shared_ptr<session>> all;
  for (session* s : sessions) all.push_back(s->shared_from_this());
  return all;
}

void http_server::state::accept() {
  acceptor.async_accept([this](beast::error_code e, tcp::socket socket) {
    if (draining) return;
    if (e) {  // Out of file descriptors, most likely: they come back when clients leave.
      accept_timer.expires_after(std::chrono::milliseconds{50});
      accept_timer.async_wait([this](beast::error_code stopped) {
        if (!stopped && !draining) accept();
      });
      return;
    }
    // Whoever makes the answer may be the last to let go, on a thread of their own.
    const auto end = [this](session* last) {
      asio::dispatch(context, [owned = std::unique_ptr<session>{last}] {});
    };
    const std::shared_ptr<session> s{new session{std::move(socket), *this}, end};
    if (sessions.size() > settings.max_connections) {
      s->turn_away();
    } else {
      s->read();
    }
    accept();
  });
}

void http_server::state::begin_drain(int signal) {
  const auto under_way = std::ranges::count_if(sessions, &session::is_asked);
  fmt::print("{}: {}: draining {} requests\n", settings.name,
             signal == SIGTERM ? "SIGTERM" : "SIGINT", under_way);
  std::fflush(stdout);
  draining = true;
  beast::error_code ignored;
  acceptor.close(ignored);
  app->draining();
  for (const auto& s : everyone()) s->close_if_idle();
  drain_timer.expires_after(milliseconds_of(settings.drain_timeout_s));
  drain_timer.async_wait([this](beast::error_code e) {
    if (e) return;
    for (const auto& s : everyone()) s->close_now();
    context.stop();
  });
  maybe_stop();
}

/// Stops when the last connection has closed; its handlers drop it a few turns later.
void http_server::state::maybe_stop() {
  if (!draining) return;
  if (sessions.empty()) {
    drain_timer.cancel();
    context.stop();
    return;
  }
  for (const auto& s : everyone()) s->close_if_idle();
  accept_timer.expires_after(std::chrono::milliseconds{2});
  accept_timer.async_wait([this](beast::error_code e) {
    if (!e) maybe_stop();
  });
}

http_server::http_server(const http_options& o) : state_{std::make_unique<state>(o)} {}
http_server::~http_server() = default;

void http_server::listen() {
  beast::error_code e;
  const http_options& o = state_->settings;
  const auto fail = [&](const char* what) {
    if (e) {
      throw resource_error{fmt::format("cannot {} {}:{}: {}", what, o.host, o.port, e.message())};
    }
  };
  const auto address = asio::ip::make_address(o.host, e);
  if (e) {
    throw config_error{fmt::format("--host: {} is not allowed: expected an IP address", o.host)};
  }
  const tcp::endpoint endpoint{address, o.port};
  state_->acceptor.open(endpoint.protocol(), e);
  fail("open");
  state_->acceptor.set_option(asio::socket_base::reuse_address{true}, e);
  fail("configure");
  state_->acceptor.bind(endpoint, e);
  fail("listen on");
  state_->acceptor.listen(1024, e);
  fail("listen on");
}

std::uint16_t http_server::port() const { return state_->acceptor.local_endpoint().port(); }

void http_server::run(http_app& app) {
  state& me = *state_;
  me.app = &app;
  me.signals.add(SIGTERM);
  me.signals.add(SIGINT);
  me.signals.async_wait([&me](beast::error_code e, int signal) {
    if (!e) me.begin_drain(signal);
  });
  me.accept();
  me.context.run();
}

bool http_server::is_draining() const noexcept { return state_->draining; }

void http_server::post(std::function<void()> work) { asio::post(state_->context, std::move(work)); }

}  // namespace cohort::serve
