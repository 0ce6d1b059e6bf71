// SPDX-License-Identifier: Apache-2.0
#include "http_server.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>
#include <cohort/serve/infer_request.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cmath>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace cohort::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using response = http::response<http::string_body>;

constexpr std::size_t header_limit = 16 << 10U;

class session;

/// One infer request: its rows, each a request of the engine. Belongs to itself until the last row
/// has ended: `finish` on the HTTP thread frees it.
struct job {
  struct row : engine::tensor_request {
    job* owner = nullptr;
    outcome how = outcome::failed;
  };
  std::shared_ptr<session> client;
  const served_model* model = nullptr;
  serve::infer_request asked;
  std::vector<std::byte> output;
  std::vector<row> rows;
  std::atomic<std::size_t> left{0};
  std::optional<refusal> why_refused;
  bool abandoned = false;  // The client has gone.
};

}  // namespace

struct http_server::state {
  explicit state(const options& o)
      : settings{o},
        context{1},
        acceptor{context},
        signals{context},
        drain_timer{context},
        accept_timer{context},
        parser{o.max_rows} {}

  void accept();
  void begin_drain(int signal);
  void maybe_stop();
  void finish(job* j);

  const options& settings;
  asio::io_context context;
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer drain_timer;
  asio::steady_timer accept_timer;
  serve::infer_parser parser;
  steady_clock clock;
  service* models = nullptr;
  serve::metrics* counters = nullptr;
  std::unordered_map<std::string, const served_model*> by_name;
  std::unordered_set<session*> sessions;
  std::size_t jobs = 0;
  bool draining = false;
};

namespace {

/// One connection: reads a request, answers it, reads the next.
class session : public std::enable_shared_from_this<session> {
 public:
  session(tcp::socket socket, http_server::state& server)
      : stream_{std::move(socket)}, arrival_{stream_.get_executor()}, server_{server} {
    server_.sessions.insert(this);
    beast::error_code ignored;
    stream_.socket().set_option(tcp::no_delay{true}, ignored);
  }
  ~session() { server_.sessions.erase(this); }
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  void read() {
    parser_.emplace();
    parser_->header_limit(header_limit);
    parser_->body_limit(server_.settings.body_limit);
    idle_ = true;
    expect_request();
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](beast::error_code e, std::size_t) { self->on_header(e); });
  }

  /// Answers a connection that is one too many, and closes it.
  void turn_away() {
    keep_alive_ = false;
    fail(http::status::service_unavailable, "too many connections", 1);
  }

  /// Closes a connection on which no request has arrived yet.
  void close_if_idle() {
    if (idle_ && !reply_) shut();
  }
  void close_now() {
    abandon();
    shut();
  }

  void answer(http::status status, std::string body, const char* type = "application/json",
              std::optional<unsigned> retry_after = {}, const char* allow = nullptr) {
    job_ = nullptr;
    server_.counters->answered(static_cast<int>(status));
    reply_.emplace(status, version_);
    reply_->set(http::field::server, std::string{"cohort/"} + version_string);
    reply_->set(http::field::content_type, type);
    if (retry_after) reply_->set(http::field::retry_after, std::to_string(*retry_after));
    if (allow != nullptr) reply_->set(http::field::allow, allow);
    reply_->body() = std::move(body);
    reply_->keep_alive(keep_alive_ && !server_.draining);
    const std::size_t length = reply_->body().size();
    if (head_only_) reply_->body().clear();
    reply_->content_length(length);
    stream_.expires_after(patience());
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
  void fail(http::status status, std::string_view message,
            std::optional<unsigned> retry_after = {}) {
    answer(status, serve::error_body(message), "application/json", retry_after);
  }

 private:
  [[nodiscard]] std::chrono::milliseconds patience() const {
    return std::chrono::milliseconds{
        static_cast<std::int64_t>(server_.settings.read_timeout_s * 1e3)};
  }

  /// A stream's own timeout would close it, and the client would not learn why.
  void expect_request() {
    is_overdue_ = false;
    arrival_.expires_after(patience());
    arrival_.async_wait([self = shared_from_this()](beast::error_code e) {
      if (e || self->has_arrived_) return;
      self->is_overdue_ = true;
      self->stream_.cancel();
    });
    has_arrived_ = false;
  }
  void request_arrived() {
    has_arrived_ = true;  // The timer may have fired already, its handler not yet run.
    arrival_.cancel();
  }

  void shut() {
    request_arrived();
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  /// The client is gone: its requests need not run.
  void abandon() {
    if (job_ == nullptr) return;
    job_->abandoned = true;
    for (job::row& r : job_->rows) server_.models->cancel(r);
    job_ = nullptr;
  }

  void refuse(http::status status, std::string_view message) {
    request_arrived();
    keep_alive_ = false;  // What follows in the stream cannot be told from the bad request.
    fail(status, message);
  }

  /// Answers what is wrong with the bytes, or closes if nobody waits for it.
  void on_bad_read(beast::error_code e) {
    if (e == http::error::header_limit) {
      return refuse(http::status::request_header_fields_too_large,
                    fmt::format("the header is over {} bytes", header_limit));
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
    if (e) return on_bad_read(e);
    idle_ = false;
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
                       if (e) return self->on_bad_read(e);
                       self->request_arrived();
                       self->route();
                     });
  }

  void on_written(beast::error_code e) {
    stream_.expires_never();
    reply_.reset();
    if (e || !keep_alive_ || server_.draining) {
      shut();
      server_.maybe_stop();
      return;
    }
    read();
  }

  void route() {
    const auto& request = parser_->get();
    std::string_view path{request.target().data(), request.target().size()};
    if (path.starts_with("http://")) {  // The absolute form, which proxies send.
      path.remove_prefix(std::min(path.size(), path.find('/', 7)));
    }
    path = path.substr(0, path.find('?'));
    const bool reads = request.method() == http::verb::get || request.method() == http::verb::head;
    const auto only = [&](bool allowed, const char* methods) {
      if (!allowed) {
        answer(http::status::method_not_allowed,
               serve::error_body(fmt::format("{} allows only {}", path, methods)),
               "application/json", {}, methods);
      }
      return allowed;
    };
    if (path == "/v2/health/live") {
      if (only(reads, "GET")) answer(http::status::ok, R"({"live":true})");
    } else if (path == "/v2/health/ready") {
      if (!only(reads, "GET")) return;
      if (server_.draining) return fail(http::status::service_unavailable, "draining");
      answer(http::status::ok, R"({"ready":true})");
    } else if (path == "/v2" || path == "/v2/") {
      if (only(reads, "GET")) answer(http::status::ok, metadata());
    } else if (path == "/metrics") {
      if (!only(reads, "GET")) return;
      for (const served_model& m : server_.models->models()) {
        server_.counters->set_waiting(m.id, server_.models->waiting(m.id));
      }
      answer(http::status::ok, server_.counters->text(), "text/plain; version=0.0.4");
    } else if (path.starts_with("/v2/models/")) {
      route_model(path.substr(11), reads, request.method() == http::verb::post);
    } else {
      fail(http::status::not_found, fmt::format("{} is unknown", path));
    }
  }

  void route_model(std::string_view rest, bool reads, bool posts) {
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(name.size());
    const auto found = server_.by_name.find(std::string{name});
    if (found == server_.by_name.end()) {
      return fail(http::status::not_found, fmt::format("model '{}' is unknown", name));
    }
    if (rest.starts_with("/versions/")) {
      rest.remove_prefix(10);
      const std::string_view version = rest.substr(0, rest.find('/'));
      if (version != "1") {
        return fail(http::status::not_found,
                    fmt::format("model '{}' has no version '{}', only '1'", name, version));
      }
      rest.remove_prefix(version.size());
    }
    const served_model& model = *found->second;
    const auto method = [&](bool allowed, const char* allow) {
      if (!allowed) {
        answer(http::status::method_not_allowed,
               serve::error_body(fmt::format("this path allows only {}", allow)),
               "application/json", {}, allow);
      }
      return allowed;
    };
    if (rest.empty()) {
      if (method(reads, "GET")) {
        answer(http::status::ok, serve::write_model_metadata(model.meta));
      }
    } else if (rest == "/ready") {
      if (!method(reads, "GET")) return;
      if (server_.draining) return fail(http::status::service_unavailable, "draining");
      answer(http::status::ok,
             fmt::format(R"({{"name":{},"ready":true}})", serve::json_string(model.meta.name)));
    } else if (rest == "/infer") {
      if (method(posts, "POST")) infer(model);
    } else {
      fail(http::status::not_found, fmt::format("model '{}' has nothing at '{}'", name, rest));
    }
  }

  [[nodiscard]] std::string metadata() const {
    std::string names;
    for (const served_model& m : server_.models->models()) {
      names += (names.empty() ? "" : ",") + serve::json_string(m.meta.name);
    }
    return fmt::format(
        R"({{"name":"cohort_inference_server","version":"{}","extensions":[],"parameters":{{"executor":{},"policy":{},"emulated":{},"models":[{}]}}}})",
        version_string, serve::json_string(server_.models->description()),
        serve::json_string(server_.settings.policy), server_.settings.executor == "emulated",
        names);
  }

  void infer(const served_model& model) {
    const time_point now = server_.clock.now();
    const std::string& body = parser_->get().body();
    auto parsed = server_.parser.parse(body, model.meta);
    if (const auto* e = std::get_if<serve::protocol_error>(&parsed)) {
      return fail(static_cast<http::status>(e->status), e->message);
    }
    auto j = std::make_unique<job>();
    j->client = shared_from_this();
    j->model = &model;
    j->asked = std::move(std::get<serve::infer_request>(parsed));
    const std::uint32_t n = j->asked.rows;
    const std::size_t in = model.meta.input.count() * 4;
    const std::size_t out = model.meta.output ? model.meta.output->count() * 4 : 0;
    j->output.resize(out * n);
    j->rows = std::vector<job::row>(n);
    j->left = n;
    const time_point deadline = now + j->asked.timeout.value_or(model.meta.slo);
    for (std::uint32_t i = 0; i < n; ++i) {
      job::row& r = j->rows[i];
      r.owner = j.get();
      r.id = request_id{i};
      r.model = model.id;
      r.arrival = now;
      r.deadline = deadline;
      r.input = std::span<const std::byte>{j->asked.data}.subspan(i * in, in);
      r.output = std::span<std::byte>{j->output}.subspan(i * out, out);
    }
    job* mine = j.release();
    job_ = mine;
    ++server_.jobs;
    // The last reference is dropped here: rows may end before the loop is over.
    std::uint32_t accepted = 0;
    for (; accepted < n; ++accepted) {
      mine->why_refused = server_.models->submit(mine->rows[accepted]);
      if (mine->why_refused) break;
    }
    if (mine->why_refused) {
      server_.counters->refused(model.id, *mine->why_refused);
      // All or nothing: rows already accepted are taken back.
      for (std::uint32_t i = 0; i < accepted; ++i) server_.models->cancel(mine->rows[i]);
      const std::size_t never = n - accepted;
      if (mine->left.fetch_sub(never) == never) return server_.finish(mine);
    }
    watch();
  }

  /// Notices that the client goes away while its answer is being computed.
  void watch() {
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](beast::error_code e) {
                                  if (e || self->job_ == nullptr) return;
                                  char byte = 0;
                                  beast::error_code error;
                                  const std::size_t got = self->stream_.socket().receive(
                                      asio::buffer(&byte, 1), tcp::socket::message_peek, error);
                                  // More bytes are a pipelined request, which waits for its turn.
                                  if (got == 0 && error != asio::error::would_block) {
                                    self->abandon();
                                    self->shut();
                                  }
                                });
  }

  beast::tcp_stream stream_;
  asio::steady_timer arrival_;  // Until the request has arrived.
  http_server::state& server_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<response> reply_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::optional<http::response<http::empty_body>> go_on_;
  job* job_ = nullptr;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool idle_ = true;  // No header has arrived.
  bool has_arrived_ = false;
  bool is_overdue_ = false;
};

http::status status_of(refusal why) {
  switch (why) {
    case refusal::queue_full:
      return http::status::too_many_requests;
    case refusal::deadline_infeasible:
      return http::status::gateway_timeout;
    case refusal::draining:
      return http::status::service_unavailable;
    case refusal::too_big:
      return http::status::payload_too_large;
    case refusal::unknown_model:
      return http::status::not_found;
  }
  return http::status::internal_server_error;
}

}  // namespace

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
    auto s = std::make_shared<session>(std::move(socket), *this);
    if (sessions.size() > settings.max_connections) {
      s->turn_away();
    } else {
      s->read();
    }
    accept();
  });
}

/// All rows have ended: answers, unless nobody is there any more.
void http_server::state::finish(job* raw) {
  const std::unique_ptr<job> j{raw};
  --jobs;
  const time_point now = clock.now();
  std::optional<outcome> worst;
  for (const job::row& r : j->rows) {
    if (j->why_refused) break;
    counters->ended(j->model->id, r.how, now - r.arrival);
    if (r.how != outcome::completed && (!worst || r.how > *worst)) worst = r.how;
  }
  if (!j->abandoned) {
    session& client = *j->client;
    const std::string& name = j->model->meta.name;
    if (j->why_refused) {
      const http::status status = status_of(*j->why_refused);
      const bool later =
          status == http::status::too_many_requests || status == http::status::service_unavailable;
      // The queue turns over within about the time it is allowed to be deep.
      const unsigned seconds =
          std::max(1U, static_cast<unsigned>(std::ceil(to_seconds(j->model->meta.slo))));
      client.fail(
          status,
          fmt::format("model '{}' refused the request: {}", name, to_string(*j->why_refused)),
          later ? std::optional{seconds} : std::nullopt);
    } else if (worst && *worst != outcome::late) {
      const bool failed = *worst == outcome::failed;
      client.fail(
          failed ? http::status::internal_server_error : http::status::gateway_timeout,
          fmt::format("model '{}': {}", name,
                      failed ? "the device failed the batch" : "the deadline could not be met"));
    } else {
      auto body = serve::write_infer_response(j->model->meta, j->asked, j->output);
      if (const auto* e = std::get_if<serve::protocol_error>(&body)) {
        client.fail(static_cast<http::status>(e->status), e->message);
      } else {
        client.answer(http::status::ok, std::move(std::get<std::string>(body)));
      }
    }
  }
  maybe_stop();
}

void http_server::state::begin_drain(int signal) {
  fmt::print("inference_server: {}: draining {} requests\n",
             signal == SIGTERM ? "SIGTERM" : "SIGINT", jobs);
  std::fflush(stdout);
  draining = true;
  beast::error_code ignored;
  acceptor.close(ignored);
  models->drain();
  const std::vector<session*> all{sessions.begin(), sessions.end()};
  for (session* s : all) s->close_if_idle();
  drain_timer.expires_after(
      std::chrono::milliseconds{static_cast<std::int64_t>(settings.drain_timeout_s * 1e3)});
  drain_timer.async_wait([this](beast::error_code e) {
    if (e) return;
    const std::vector<session*> left{sessions.begin(), sessions.end()};
    for (session* s : left) s->close_now();
    context.stop();
  });
  maybe_stop();
}

void http_server::state::maybe_stop() {
  if (!draining || jobs > 0) return;
  // One more turn, so that answers being written get out.
  asio::post(context, [this] {
    if (jobs == 0 && sessions.empty()) {
      drain_timer.cancel();
      context.stop();
    } else {
      const std::vector<session*> all{sessions.begin(), sessions.end()};
      for (session* s : all) s->close_if_idle();
      asio::post(context, [this] {
        if (jobs == 0 && sessions.empty()) context.stop();
      });
    }
  });
}

http_server::http_server(const options& o) : state_{new state{o}} {}
http_server::~http_server() { delete state_; }

void http_server::listen() {
  beast::error_code e;
  const options& o = state_->settings;
  const auto fail = [&](const char* what) {
    if (e) {
      throw config_error{fmt::format("cannot {} {}:{}: {}", what, o.host, o.port, e.message())};
    }
  };
  const auto address = asio::ip::make_address(o.host, e);
  if (e)
    throw config_error{fmt::format("--host: {} is not allowed: expected an IP address", o.host)};
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

int http_server::run(service& s, serve::metrics& counters) {
  state& me = *state_;
  me.models = &s;
  me.counters = &counters;
  for (const served_model& m : s.models()) me.by_name.emplace(m.meta.name, &m);
  me.signals.add(SIGTERM);
  me.signals.add(SIGINT);
  me.signals.async_wait([&me](beast::error_code e, int signal) {
    if (!e) me.begin_drain(signal);
  });
  me.accept();
  std::string names;
  for (const served_model& m : s.models()) {
    if (s.models().size() > 6) break;
    names +=
        fmt::format("{}{} (SLO {} ms)", names.empty() ? "" : ", ", m.meta.name, to_ms(m.meta.slo));
  }
  if (names.empty()) names = fmt::format("{} models", s.models().size());
  fmt::print("inference_server: ready on http://{}:{} | {} | {} | policy {}\n", me.settings.host,
             me.acceptor.local_endpoint().port(), names, s.description(), me.settings.policy);
  std::fflush(stdout);
  me.context.run();
  s.drain();
  fmt::print("inference_server: drained\n");
  return 0;
}

void http_server::ended(engine::tensor_request& r, outcome how) noexcept {
  auto& row = static_cast<job::row&>(r);
  job* j = row.owner;
  row.how = how;
  if (j->left.fetch_sub(1) == 1) {
    asio::post(state_->context, [me = state_, j] { me->finish(j); });
  }
}

}  // namespace cohort::server
