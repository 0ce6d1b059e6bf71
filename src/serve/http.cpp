// SPDX-License-Identifier: Apache-2.0
#include "barrier.hpp"
#include "busy_time.hpp"
#include "compression.hpp"

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/version.hpp>
#include <cohort/serve/busy_meter.hpp>
#include <cohort/serve/connection_clock.hpp>
#include <cohort/serve/connection_places.hpp>
#include <cohort/serve/http.hpp>

#include <fmt/format.h>

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <algorithm>
#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>

#include "growing_bytes.hpp"
#include "log.hpp"

namespace cohort::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

class session;

/// Bytes of one read; more for long bodies.
constexpr std::size_t read_size = std::size_t{16} << 10U;
constexpr std::size_t most_read = 4 * read_size;
/// Time for a connection beyond the limit to send its request.
constexpr duration probe_patience = std::chrono::seconds{1};
/// A kept connection is kept for this much longer than clients are told: their last requests may
/// still be on their way.
constexpr duration edge = std::chrono::seconds{2};
/// Largest number of connections beyond the limit, for networks that hold fewer than another.
constexpr std::size_t max_spares = 32;
/// Number of connections tried as candidates to make way before another is refused.
constexpr int max_asked = 8;
/// For connections closed while their client sends: how many continue to read at one time, how much
/// each at most, and for how long after its last byte.
constexpr std::size_t max_lingering = 32;
constexpr std::uint64_t max_discarded = std::uint64_t{64} << 20U;
constexpr duration linger_patience = std::chrono::seconds{1};
/// Field of the inference protocol: its bodies may be JSON followed by binary data.
constexpr const char* inference_header_length = "Inference-Header-Content-Length";
/// Shorter answers are compressed only if the client refuses others.
constexpr std::size_t least_compressed = 1024;

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1e3)};
}

connection_limits limits_of(const http_timeouts& t) {
  const duration body = from_seconds(t.read_s);
  return {.request = from_seconds(t.idle_s) + edge,
          .header = from_seconds(t.header_s),
          .body = body,
          .taking = from_seconds(t.write_s),
          .silence = std::min(linger_patience, body),
          .bytes_per_s = t.min_rate_kib * 1024};
}
/// Limits of connections beyond the maximum.
connection_limits probe_limits_of(connection_limits l) {
  l.header = std::min(l.header, probe_patience);
  l.body = std::min(l.body, probe_patience);
  return l;
}

/// The fields that announce a kept connection, and its minimum time.
std::string kept_fields(double idle_s) {
  const auto seconds = static_cast<std::int64_t>(idle_s);
  return seconds > 0 ? fmt::format("Connection: keep-alive\r\nKeep-Alive: timeout={}\r\n", seconds)
                     : "Connection: keep-alive\r\n";
}

std::string name_of(const tcp::endpoint& e) {
  const std::string address = e.address().to_string();
  return e.address().is_v6() ? fmt::format("[{}]:{}", address, e.port())
                             : fmt::format("{}:{}", address, e.port());
}

client_network network_of(const asio::ip::address& a) {
  return a.is_v4() ? a.to_v4().to_uint() : serve::network_of(a.to_v6().to_bytes());
}

/// A body that takes memory only as its bytes arrive. `http::string_body` allocates the announced
/// length at once, even if the client then sends nothing.
struct arriving_body {
  using value_type = growing_bytes;
  class reader {
   public:
    template <bool IsRequest, class Fields>
    reader(http::header<IsRequest, Fields>& /*header*/, value_type& body) : body_{body} {}
    void init(const boost::optional<std::uint64_t>& length, beast::error_code& e) {
      most_ = static_cast<std::size_t>(length.value_or(SIZE_MAX));  // The limit bounds it.
      e = {};
    }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, beast::error_code& e) {
      const std::size_t size = beast::buffer_bytes(buffers);
      body_.reserve_for(size, most_);
      for (const auto b : beast::buffers_range_ref(buffers)) {
        body_.append({static_cast<const char*>(b.data()), b.size()});
      }
      e = {};
      return size;
    }
    static void finish(beast::error_code& e) { e = {}; }

   private:
    value_type& body_;
    std::size_t most_ = SIZE_MAX;
  };
};

/// A whole body, written in pieces.
class whole_body final : public http_body {
 public:
  explicit whole_body(std::string text) : text_{std::move(text)} {}
  [[nodiscard]] std::optional<std::size_t> size() const override { return text_.size(); }
  bool append_to(std::string& out) override {
    out.append(text_, std::exchange(written_, written_ + http_piece), http_piece);
    return written_ < text_.size();
  }

 private:
  std::string text_;
  std::size_t written_ = 0;
};

bool is_from_loopback(const tcp::socket& socket) {
  beast::error_code e;
  asio::ip::address from = socket.remote_endpoint(e).address();
  if (e) return false;
  if (from.is_v6() && from.to_v6().is_v4_mapped()) {
    from = asio::ip::make_address_v4(asio::ip::v4_mapped, from.to_v6());
  }
  return from.is_loopback();
}

/// Whether a proxy added this field, so that the client is a different one.
template <class Field>
bool is_of_proxy(const Field& f) {
  if (f.name() == http::field::forwarded || f.name() == http::field::via) return true;
  if (f.name() != http::field::unknown) return false;
  const auto name = f.name_string();
  constexpr beast::string_view forwarded = "X-Forwarded-";
  constexpr beast::string_view others[] = {"X-Real-IP",
                                           "X-Client-IP",
                                           "True-Client-IP",
                                           "CF-Connecting-IP",
                                           "X-Original-Forwarded-For",
                                           "X-Envoy-External-Address"};
  return std::ranges::any_of(others, [&](auto other) { return beast::iequals(name, other); }) ||
         (name.size() > forwarded.size() &&
          beast::iequals(name.substr(0, forwarded.size()), forwarded));
}

}  // namespace

struct http_server::state {
  explicit state(http_options o)
      : settings{std::move(o)},
        memory{settings.max_held_bytes > 0 ? settings.max_held_bytes : default_request_memory()},
        limits{limits_of(settings.timeouts)},
        probe_limits{probe_limits_of(limits)},
        kept{kept_fields(settings.timeouts.idle_s)},
        places{settings.max_connections, spares(), from_seconds(settings.slow_after_s)},
        context{1},
        acceptor{context},
        drain_timer{context},
        accept_timer{context},
        clock_timer{context} {}

  [[nodiscard]] std::pair<int, std::string> why_no_memory(std::size_t bytes) const;
  void accept();
  void admit(tcp::socket socket);
  template <class Find>
  void make_room(const Find& find);
  void empty_the_queue();
  void say_none_is_let_in(beast::error_code why);
  void begin_drain(std::chrono::milliseconds within);
  void check_times();
  void maybe_stop();
  /// Whether a drain still waits for requests on their way.
  [[nodiscard]] bool is_patient() const { return std::chrono::steady_clock::now() < patient_until; }
  [[nodiscard]] std::vector<std::shared_ptr<session>> everyone() const;
  /// Bytes that a connection's body may always have: its part of a quarter of all.
  [[nodiscard]] std::size_t own_bytes() const {
    return settings.max_body_bytes / 4 / std::max<std::size_t>(1, max_sharing());
  }
  /// Bytes beyond that, shared by all.
  [[nodiscard]] std::size_t shared_bytes() const {
    return settings.max_body_bytes - own_bytes() * max_sharing();
  }
  [[nodiscard]] std::size_t max_sharing() const {
    return settings.max_connections + spares() + settings.probe_connections;
  }
  /// Connections beyond the limit, for networks that hold fewer places than another.
  [[nodiscard]] std::size_t spares() const {
    return std::clamp<std::size_t>(settings.max_connections / 32, 1, max_spares);
  }

  busy_meter meter;  // Meter of the thread in `run`.

  http_options settings;
  byte_ledger memory;                     // Outlives its holders.
  std::unordered_set<session*> sessions;  // Handlers still in the context hold some.
  connection_limits limits;
  connection_limits probe_limits;  // Limits of connections beyond the maximum.
  std::string kept;                // Fields of an answer on a kept connection.
  connection_places<session> places;
  std::list<session*> extras;     // Without a place, the latest last.
  std::list<session*> lingering;  // In neither of these, the latest last.
  std::vector<char> discarded = std::vector<char>(4 * read_size);  // Bytes they read.
  std::atomic<std::size_t> under_way{0};
  std::size_t held_bytes = 0;  // Shared body bytes in use.
  asio::io_context context;
  tcp::acceptor acceptor;
  tcp::endpoint peer;      // Peer of the latest connection.
  std::uint16_t port = 0;  // Separate: `run`'s thread may be closing the acceptor.
  std::string url;
  asio::steady_timer drain_timer;
  asio::steady_timer accept_timer;
  asio::steady_timer clock_timer;
  http_app* app = nullptr;
  std::chrono::steady_clock::time_point patient_until;  // While it drains.
  std::chrono::steady_clock::time_point silent_until;   // Until then no refusal is logged again.
  std::atomic<bool> draining{false};
  std::atomic<bool> leaving{false};  // Or draining.
};

namespace {

/// One connection: reads a request, has it answered, reads the next.
class session final : public http_client, public std::enable_shared_from_this<session> {
 public:
  session(tcp::socket socket, http_server::state& server, client_network from)
      : socket_{std::move(socket)},
        server_{server},
        from_{from},
        is_from_loopback_{is_from_loopback(socket_)},
        request_memory_{server.memory},
        answer_memory_{server.memory} {
    server_.sessions.insert(this);
    beast::error_code ignored;
    socket_.non_blocking(true, ignored);
  }
  ~session() override {
    move_to(phase::closed);
    let_go();
    server_.sessions.erase(this);
    leave_place();
    server_.lingering.remove(this);
  }

  /// Takes a shared place, or an extra one that only serves a probe.
  void take_place() {
    if (server_.places.enter(place_, from_)) return;
    server_.extras.push_back(this);
    is_extra_ = true;
    clock_ = connection_clock{server_.probe_limits};
  }

  void read() {
    parser_.emplace();
    preferred_ = {};
    parser_->header_limit(static_cast<std::uint32_t>(server_.settings.header_limit));
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());  // Until the header is read.
    parser_->eager(false);  // One step ends with the header.
    header_size_ = 0;
    let_go();
    move_to(phase::idle);
    const time_point now = steady_clock{}.now();
    clock_.await(is_fresh_ || buffer_.size() > 0 ? awaited::header : awaited::request, now);
    waits(now);
    if (buffer_.size() == 0) {
      if (buffer_.capacity() > std::size_t{4} * read_size) buffer_ = {};
      return receive();
    }
    // A pipelined request is posted, so that a client that sends many does not go before all
    // others.
    asio::post(server_.context, [self = shared_from_this()] {
      if (self->phase_ == phase::idle) self->feed();
    });
  }

  /// Closes the connection if its client is too late. Not while bytes wait to be read: then this
  /// process is late, perhaps because it was stopped, and not the client.
  void check_time(time_point now) {
    if (!clock_.is_late(now) || has_moved(now)) return;
    switch (clock_.waits_for()) {
      case awaited::request:
        return linger();  // A connection kept open without a request is no fault.
      case awaited::header:
        if (is_extra_) return turn_away();
        if (!has_begun()) return shut();
        return refuse(http::status::request_timeout,
                      fmt::format("the header did not arrive within {} s",
                                  server_.settings.timeouts.header_s));
      case awaited::body:
        if (is_extra_) return turn_away();
        return refuse(
            http::status::request_timeout,
            fmt::format("the body did not arrive: nothing came for {} s, or less than {} "
                        "KiB a second",
                        server_.settings.timeouts.read_s, server_.settings.timeouts.min_rate_kib));
      case awaited::taking:
        return give_up();
      case awaited::silence:
        return shut();
      case awaited::nothing:
        break;
    }
  }
  /// Whether the client has sent or taken bytes that were not noticed yet.
  bool has_moved(time_point now) {
    const awaited what = clock_.waits_for();
    if (what == awaited::silence) return false;
    if (what != awaited::taking) return has_unread();
    look(0, now);
    return !clock_.is_late(now);
  }
  /// Gives up its place to another connection.
  /// @returns Whether it did. It declines once if bytes of its client are unread, or if the client
  /// has taken enough.
  bool make_way(time_point now) {
    if (clock_.waits_for() == awaited::taking) {
      if (look(0, now)) return false;
    } else if (!is_spared_ && has_unread()) {  // This process may be late in reading.
      is_spared_ = true;
      server_.places.awaits(place_, now);
      return false;
    }
    leave_place();
    if (clock_.waits_for() == awaited::taking) {
      give_up();
    } else if (!has_begun()) {
      linger();
    } else {
      turn_away();
      if (phase_ == phase::answering) shut();  // The client does not take the answer either.
    }
    return true;
  }

  /// Refuses a connection beyond the maximum, and closes it.
  void turn_away() {
    server_.app->refused(http_bound::connections);
    refuse(http::status::service_unavailable, "too many connections", 1);
  }

  /// Closes a connection without a request, unless one is on its way.
  /// @param patiently Also keep it if it is new, or a part of a request has arrived.
  void close_if_idle(bool patiently) {
    const bool is_arriving = phase_ == phase::arriving && !is_whole() && !has_unread();
    if (!patiently && is_arriving) return refuse_late();
    if (!patiently && phase_ == phase::lingering) return shut();
    if (phase_ != phase::idle) return;
    const bool is_coming = is_fresh_ || buffer_.size() > 0 || has_unread();
    if (!patiently || !is_coming) shut();
  }
  [[nodiscard]] bool is_gone() const noexcept override { return phase_ == phase::closed; }
  [[nodiscard]] bool is_silent() const noexcept { return phase_ == phase::idle; }
  [[nodiscard]] client_network from() const noexcept { return from_; }
  /// Whether an answer is being made.
  [[nodiscard]] bool is_asked() const noexcept {
    return phase_ == phase::asked || phase_ == phase::streaming;
  }
  void close_now() { give_up(); }

  void answer(http_reply r) override {
    guard([&] { begin_answer(std::move(r)); });
  }

  void begin(const std::string& type) override {
    guard([&] { begin_stream(type); });
  }
  void send(std::string_view bytes) override {
    guard([&] { send_more(bytes); });
  }
  void end() override {
    guard([&] { end_stream(); });
  }
  void on_gone(std::function<void()> gone) override {
    if (is_asked()) {
      gone_ = std::move(gone);
    } else {
      gone();
    }
  }

  /// Calls `work`. If it throws, the pending request gets an error answer; without one the
  /// connection closes. No other connection is affected.
  template <class Work>
  void guard(Work work) noexcept {
    try {
      work();
    } catch (...) {
      log_fault(server_.settings.name, "a request failed");
      try {
        tell(current_fault());
      } catch (...) {
        give_up();
      }
    }
  }

 private:
  /// Answers with an error. The app may have kept the request; its views must stay valid, so no
  /// other is read into its place: most likely if it set `on_gone`.
  void tell(const fault& f) {
    if (phase_ != phase::asked || gone_) return give_up();
    keep_alive_ = false;
    is_kept_ = true;
    http_reply r{.status = f.status, .body = server_.app->error_body(f.status, f.message)};
    if (f.status == 503) r.fields.emplace_back("Retry-After", "1");
    begin_answer(std::move(r));
  }
  /// Closes without an answer, or in the middle of one.
  void give_up() noexcept {
    if (phase_ == phase::closed) return;
    try {
      lose();
    } catch (...) {
      log_fault(server_.settings.name, "a request that ended failed");
    }
    shut();
  }

  void begin_answer(http_reply r) {
    if (phase_ != phase::asked) return;
    move_to(phase::answering);
    gone_ = nullptr;
    server_.app->answered(r.status);
    clock_.begin_answer();
    keep_alive_ = keep_alive_ && !server_.leaving;
    compress(r);
    const auto reason = http::obsolete_reason(static_cast<http::status>(r.status));
    const auto to = std::back_inserter(unsent_);
    fmt::format_to(to, "HTTP/1.{} {} {}\r\nServer: cohort/{}\r\nContent-Type: {}\r\n",
                   version_ % 10, r.status, view(reason), version_string, r.type);
    const std::optional<std::size_t> size = compressor_ ? std::nullopt
                                            : r.pieces  ? r.pieces->size()
                                                        : std::optional{r.body.size()};
    is_chunked_ = !size && version_ >= 11;
    if (size) {
      fmt::format_to(to, "Content-Length: {}\r\n", *size);
    } else if (is_chunked_) {
      unsent_ += "Transfer-Encoding: chunked\r\n";
    } else {
      keep_alive_ = false;  // The end of the connection ends the body.
    }
    for (const auto& [name, value] : r.fields) fmt::format_to(to, "{}: {}\r\n", name, value);
    unsent_ += keep_alive_ ? server_.kept : "Connection: close\r\n";
    unsent_ += "\r\n";
    if (!head_only_ && r.pieces) {
      pieces_ = std::move(r.pieces);
      parser_.reset();  // Its answer may take long.
      let_go();
      append_piece();
    } else {
      compressor_.reset();
      if (!head_only_) unsent_ += r.body;
    }
    pump();
  }

  /// Compresses an answer if its client wants that, a long one while it is written.
  void compress(http_reply& r) {
    const std::size_t size = r.body.size();
    if (!r.may_be_compressed) return;
    const bool is_long = r.pieces || size >= least_compressed;
    if (is_long) r.fields.emplace_back("Vary", "Accept-Encoding");
    const auto [coding, is_required] = preferred_;
    if (coding == content_coding::identity || (!is_long && (!is_required || size == 0))) return;
    if (!r.pieces && size <= http_piece) {
      std::string compressed;
      compressor{coding}.append(r.body, true, compressed);
      if (compressed.size() >= size && !is_required) return;
      r.body = std::move(compressed);
    } else {
      if (!answer_memory_.resize(compressor::memory + size)) return;  // Sent uncompressed then.
      compressor_.emplace(coding);
      compressed_memory_ = compressor::memory + size;
      if (!r.pieces) r.pieces = std::make_shared<whole_body>(std::move(r.body));
    }
    r.fields.emplace_back("Content-Encoding", name_of(coding));
  }

  /// Appends one more piece of an answer.
  void append_piece() {
    const std::size_t before = unsent_.size();
    bool has_more = false;
    if (compressor_) {
      std::string piece;
      has_more = pieces_->append_to(piece);
      compressor_->append(piece, !has_more, unsent_);
    } else {
      has_more = pieces_->append_to(unsent_);
    }
    const std::size_t size = unsent_.size() - before;
    if (is_chunked_ && size > 0) {
      unsent_.insert(before, fmt::format("{:x}\r\n", size));
      unsent_ += "\r\n";
    }
    if (has_more) return;
    pieces_.reset();
    compressor_.reset();
    if (is_chunked_) unsent_ += "0\r\n\r\n";
  }

  void begin_stream(const std::string& type) {
    if (phase_ != phase::asked) return;
    move_to(phase::streaming);
    server_.app->answered(200);
    is_chunked_ = version_ >= 11;  // If not, the end of the connection ends the body.
    if (!is_chunked_ || server_.leaving) keep_alive_ = false;
    clock_.begin_answer();
    unsent_ += fmt::format(
        "HTTP/1.{} 200 OK\r\nServer: cohort/{}\r\nContent-Type: {}\r\nCache-Control: no-cache\r\n"
        "{}{}\r\n",
        version_ % 10, version_string, type, is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "",
        keep_alive_ ? server_.kept : "Connection: close\r\n");
    pump();
  }
  void send_more(std::string_view bytes) {
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
  void end_stream() {
    if (phase_ != phase::streaming) return;
    move_to(phase::answering);
    gone_ = nullptr;
    if (is_chunked_) unsent_ += "0\r\n\r\n";
    if (sending_.empty() && unsent_.empty()) return on_sent();
    pump();
  }

  enum class phase : std::uint8_t {
    idle,       // No header yet.
    arriving,   // No complete body yet.
    asked,      // The app must answer.
    streaming,  // The app is answering.
    answering,  // The rest must be sent.
    lingering,  // All is sent; further input is discarded.
    closed,
  };

  /// Whether there are unread bytes.
  [[nodiscard]] bool has_unread() {
    beast::error_code ignored;
    return socket_.available(ignored) > 0;
  }
  void move_to(phase next) {
    phase_ = next;
    count(next == phase::asked || next == phase::streaming || next == phase::answering);
  }
  /// Counts it among the requests not yet fully answered, or no longer.
  void count(bool is_under_way) {
    if (is_under_way == is_counted_) return;
    is_counted_ = is_under_way;
    if (is_under_way) {
      ++server_.under_way;
    } else {
      --server_.under_way;
    }
  }

  /// Whether a part of a request has come.
  [[nodiscard]] bool has_begun() const {
    return phase_ == phase::arriving || buffer_.size() > 0 || (parser_ && parser_->got_some());
  }
  /// Notes which sent bytes the client has taken since the last look.
  /// @param sent Bytes passed to the system since then.  @returns Whether it is not slow.
  bool look(std::size_t sent, time_point now) {
    const std::size_t before = untaken_ + sent;
    untaken_ = std::min(before, queued());
    clock_.moved(before - untaken_, now);
    return progressed(before - untaken_, now);
  }
  /// Bytes of answers in the system's buffer.
  [[nodiscard]] std::size_t queued() {
    int bytes = 0;
    return ioctl(socket_.native_handle(), SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes)
                                                                 : 0;
  }

  /// Shared bytes needed for a request of this size.
  [[nodiscard]] std::size_t beyond_own(std::size_t bytes) const {
    return bytes - std::min(bytes, server_.own_bytes());
  }
  /// Whether there is room for a body of this size. For a single request there always is.
  [[nodiscard]] bool is_room_for(std::size_t bytes) const {
    const std::size_t more = beyond_own(bytes);
    const std::size_t others = server_.held_bytes - held_;
    return more == 0 || others == 0 || others + more <= server_.shared_bytes();
  }
  /// Counts the bytes of its request: those received and the room made for them, not those
  /// announced. If there is no room it answers with an error.
  /// @returns Whether there was.
  bool hold() {
    const growing_bytes& body = parser_->get().body();
    const std::size_t taken = (body.empty() ? 0 : body.capacity()) +
                              (buffer_.capacity() - std::min(buffer_.capacity(), read_size)) +
                              (decompressor_ ? decompressor_->held() : 0);
    if (!is_room_for(taken)) {
      no_room();
    } else if (!request_memory_.resize(taken)) {
      no_memory(taken);
    } else {
      server_.held_bytes -= held_;
      held_ = beyond_own(taken);
      server_.held_bytes += held_;
      return true;
    }
    return false;
  }
  void let_go() noexcept {
    server_.held_bytes -= std::exchange(held_, 0);
    request_memory_.set(0);
  }
  void count_unsent() noexcept {
    answer_memory_.set(unsent_.size() + sending_.size() + (compressor_ ? compressed_memory_ : 0));
  }

  void leave_place() noexcept {
    server_.places.leave(place_);
    if (is_extra_) server_.extras.remove(this);
  }

  void shut() noexcept {
    if (phase_ == phase::lingering) server_.lingering.remove(this);
    move_to(phase::closed);
    clock_.stop();
    leave_place();
    pieces_.reset();
    compressor_.reset();
    beast::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  /// Ends a connection while its client may still send. Closing with unread bytes would reset it,
  /// and the client would never see its answer. So the close waits for the client to close, or to
  /// be silent.
  void linger() {
    move_to(phase::lingering);
    drop_request();
    leave_place();
    clock_ = connection_clock{server_.limits};
    clock_.await(awaited::silence, steady_clock{}.now());
    beast::error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    server_.lingering.push_back(this);
    // The one with the longest time is closed.
    if (server_.lingering.size() > max_lingering) {
      server_.lingering.front()->shared_from_this()->shut();
    }
    discard(max_discarded);
  }
  void discard(std::uint64_t most) {
    socket_.async_read_some(asio::buffer(server_.discarded),
                            [self = shared_from_this(), most](beast::error_code e, std::size_t n) {
                              if (self->phase_ != phase::lingering) return;
                              if (e || n >= most) return self->shut();
                              self->clock_.moved(n, steady_clock{}.now());
                              self->discard(most - n);
                            });
  }

  /// Notes that the client is gone: its request need not run.
  void lose() {
    if (is_asked()) move_to(phase::closed);
    if (auto gone = std::exchange(gone_, nullptr)) gone();
  }

  void refuse(http::status status, std::string_view message,
              std::optional<unsigned> retry_after = {}) {
    begin_refusal();
    http_reply r{.status = static_cast<int>(status),
                 .body = server_.app->error_body(static_cast<int>(status), message)};
    if (retry_after) r.fields.emplace_back("Retry-After", std::to_string(*retry_after));
    answer(std::move(r));
  }
  void begin_refusal() {
    clock_.stop();
    server_.places.acts(place_);
    keep_alive_ = false;  // The next request cannot be found after a bad one.
    is_refused_ = true;
    move_to(phase::asked);
    drop_request();
  }
  /// Refuses a request by its header. Without a body the connection serves the next one.
  void deny(http_reply r) {
    if (parser_->is_done()) {
      clock_.stop();
      server_.places.acts(place_);
      move_to(phase::asked);
    } else {
      begin_refusal();
    }
    answer(std::move(r));
  }

  /// Frees the request, unless the app may have kept it.
  void drop_request() {
    beast::error_code ignored;
    socket_.cancel(ignored);  // Otherwise it would be read into the buffer.
    buffer_ = {};
    decompressor_.reset();
    if (is_kept_) return;
    parser_.reset();
    let_go();
  }

  /// Answers malformed input, or closes if no client waits for an answer.
  void on_bad_read(beast::error_code e) {
    if (e == http::error::header_limit) {
      return refuse(http::status::request_header_fields_too_large,
                    fmt::format("the header is over {} bytes", server_.settings.header_limit));
    }
    if (e == http::error::body_limit) {
      return refuse(http::status::payload_too_large,
                    fmt::format("the body is over {} bytes", body_limit_));
    }
    if (e.category() == http::make_error_code(http::error::bad_method).category()) {
      return refuse(http::status::bad_request, fmt::format("not valid HTTP: {}", e.message()));
    }
    shut();
  }

  /// From now on the client must send or take bytes.
  void waits(time_point now) {
    progress_ = 0;
    is_spared_ = false;
    server_.places.awaits(place_, now);
  }
  /// Notes that it has sent or taken bytes. It counts as idle until it begins another request, or
  /// has moved as much as the minimum rate requires: single bytes do not count, nor bytes before
  /// the end of a header.
  /// @returns Whether it is not slow.
  bool progressed(std::size_t bytes, time_point now) {
    if (clock_.waits_for() == awaited::header) return false;
    progress_ += static_cast<double>(bytes);
    const double enough = server_.limits.bytes_per_s * server_.settings.slow_after_s;
    const bool is_enough = bytes > 0 && progress_ >= enough;
    if (is_enough || clock_.waits_for() == awaited::request) waits(now);
    return is_enough;
  }

  void receive() {
    growing_bytes& body = parser_->get().body();
    // As much again as has come, so that announcing a long body gets no long buffer.
    const std::size_t size = std::clamp(body.size(), read_size, most_read);
    const std::size_t plain = missing_plain_bytes();
    if (plain == 0) {
      return receive_into(buffer_.prepare(size), [this](std::size_t n) { buffer_.commit(n); });
    }
    if (body.room().empty()) body.reserve(body.size() + std::min(plain, body.size()));
    const std::span<char> free = body.room();
    const std::span<char> room = free.first(std::min({plain, free.size(), most_read}));
    receive_into(asio::buffer(room.data(), room.size()),
                 [&body](std::size_t n) { body.commit(n); });
  }
  /// @param keep Called with the number of bytes received.
  template <class Buffer, class Keep>
  void receive_into(Buffer to, Keep keep) {
    socket_.async_read_some(to,
                            [self = shared_from_this(), keep](beast::error_code e, std::size_t n) {
                              if (self->phase_ != phase::idle && self->phase_ != phase::arriving)
                                return;
                              if (e) return self->shut();
                              const time_point now = steady_clock{}.now();
                              self->progressed(n, now);
                              self->clock_.moved(n, now);
                              keep(n);
                              self->feed();
                            });
  }

  /// Missing bytes of a long, uncompressed body of known length. They are read directly to their
  /// place, past the parser. 0: none, or the parser must tell.
  [[nodiscard]] std::size_t missing_plain_bytes() const {
    if (phase_ != phase::arriving || decompressor_ || parser_->is_done()) return 0;
    const auto length = parser_->content_length();
    const std::size_t come = parser_->get().body().size();
    return length && come >= read_size ? static_cast<std::size_t>(*length) - come : 0;
  }
  /// Whether the whole request has come.
  [[nodiscard]] bool is_whole() const {
    return parser_->is_done() || (phase_ == phase::arriving && !decompressor_ &&
                                  parser_->content_length() == parser_->get().body().size());
  }

  /// Parses the received bytes, of at most one request. If that fails, most likely for lack of
  /// memory, the request is refused.
  void feed() {
    guard([this] {
      try {
        parse();
      } catch (...) {
        if (phase_ != phase::idle && phase_ != phase::arriving) throw;
        log_fault(server_.settings.name, "a request cannot be read");
        const fault f = current_fault();
        refuse(static_cast<http::status>(f.status), f.message,
               f.status == 503 ? std::optional{1U} : std::nullopt);
      }
    });
  }
  void parse() {
    const bool is_read = phase_ == phase::arriving && buffer_.size() == 0;  // Past the parser.
    if ((decompressor_ || is_read) && !take()) return;
    while (buffer_.size() > 0) {
      beast::error_code e;
      const std::size_t n = parser_->put(buffer_.data(), e);
      buffer_.consume(n);
      // The parser's own limit does not count fields that came together.
      if (phase_ == phase::idle) header_size_ += n;
      if (phase_ == phase::idle && header_size_ > server_.settings.header_limit) {
        return on_bad_read(http::make_error_code(http::error::header_limit));
      }
      if (e == http::error::need_more) break;
      if (e) return on_bad_read(e);
      if (phase_ == phase::idle && parser_->is_header_done()) {
        on_header();
        if (phase_ != phase::arriving) return;
        const time_point now = steady_clock{}.now();
        clock_.await(awaited::body, now);
        waits(now);
        parser_->eager(true);
        if (is_waiting_to_go_on_) return;
      }
      if (!take()) return;
      if (n == 0) break;
    }
    // Chunk headers and trailers are held until their end, which must be a CRLF.
    if (phase_ == phase::arriving && has_bare_line_feed()) {
      return refuse(http::status::bad_request, "a chunk's size line or trailer ends without CR");
    }
    if (phase_ == phase::arriving && buffer_.size() > server_.settings.header_limit) {
      return refuse(http::status::bad_request,
                    fmt::format("a chunk's size line or trailer is over {} bytes",
                                server_.settings.header_limit));
    }
    receive();
  }

  /// Takes over the received part of the body, and calls the app when it is complete. Long parts of
  /// a compressed body take several turns, so that others are served in between.
  /// @returns Whether to continue reading.
  bool take() {
    const bool is_done = is_whole();
    if (is_done) {
      clock_.stop();
      server_.places.acts(place_);
    }
    bool has_more = false;
    if (decompressor_) {
      growing_bytes& body = parser_->get().body();
      std::string_view left = body.view();
      const auto result = decompressor_->step(left, is_done);
      body.drop_front(body.size() - left.size());
      if (result == decompressor::result::failed) {
        const auto [status, why] = decompressor_->why();
        refuse(static_cast<http::status>(status), why);
        return false;
      }
      has_more = result == decompressor::result::has_more;
      if (result == decompressor::result::ended) {
        body = decompressor_->take_body();
        decompressor_.reset();
      }
    }
    if (!hold()) return false;
    if (has_more) {
      asio::post(server_.context, [self = shared_from_this()] {
        if (self->phase_ == phase::arriving) self->feed();
      });
    } else if (is_done) {
      ask();
    }
    return !has_more && !is_done;
  }

  /// Whether the rest of a body, which is no data, has a line that ends only in LF.
  [[nodiscard]] bool has_bare_line_feed() const {
    const std::string_view left{static_cast<const char*>(buffer_.data().data()), buffer_.size()};
    for (std::size_t at = left.find('\n'); at != left.npos; at = left.find('\n', at + 1)) {
      if (at == 0 || left[at - 1] != '\r') return true;
    }
    return false;
  }

  void no_room() {
    server_.app->refused(http_bound::bodies);
    refuse(http::status::service_unavailable, "the bodies of other requests leave no room", 1);
  }

  void no_memory(std::size_t bytes) {
    server_.app->refused(http_bound::memory);
    const auto [status, why] = server_.why_no_memory(bytes);
    refuse(static_cast<http::status>(status), why,
           status == 429 ? std::optional{1U} : std::nullopt);
  }

  void refuse_late() { refuse(http::status::service_unavailable, "the server is ending", 1); }

  void on_header() {
    move_to(phase::arriving);
    const auto& request = parser_->get();
    is_fresh_ = false;
    version_ = request.version();
    keep_alive_ = request.keep_alive() && !is_extra_;
    head_only_ = request.method() == http::verb::head;
    asked_ = described();
    preferred_ = coding_preferred(joined(http::field::accept_encoding));
    body_limit_ = server_.app->body_limit(asked_, server_.settings.body_limit);
    parser_->body_limit(body_limit_);
    if (const auto length = parser_->content_length(); length && *length > body_limit_) {
      return on_bad_read(http::make_error_code(http::error::body_limit));
    }
    if (is_extra_ && !server_.app->is_probe(path_of(request))) return turn_away();
    if (auto denied = server_.app->early_answer(asked_)) return deny(*std::move(denied));
    // Before it sends a body that would be refused. Announced bytes are not held for it.
    const auto announced = static_cast<std::size_t>(parser_->content_length().value_or(0));
    if (!is_room_for(announced)) return no_room();
    if (announced > server_.memory.limit()) return no_memory(announced);
    if (version_ >= 11 && request.count(http::field::host) != 1) {
      return refuse(http::status::bad_request, "expected one Host field");
    }
    if (request.count(http::field::origin) > 1) {
      return refuse(http::status::bad_request, "expected one Origin field");
    }
    if (request.count(inference_header_length) > 1) {
      return refuse(http::status::bad_request,
                    fmt::format("expected one {} field", inference_header_length));
    }
    if (request.count(http::field::transfer_encoding) > 0 && version_ < 11) {
      return refuse(http::status::bad_request, "Transfer-Encoding: not in HTTP/1.0");
    }
    if (request.count(http::field::transfer_encoding) > 0 &&
        !beast::iequals(request[http::field::transfer_encoding], "chunked")) {
      return refuse(http::status::not_implemented, "Transfer-Encoding: only chunked is understood");
    }
    if (request.count(http::field::content_encoding) > 0) {
      const auto coding = coding_named(joined(http::field::content_encoding));
      if (!coding) return refuse_coding();
      if (*coding != content_coding::identity) decompressor_.emplace(*coding, body_limit_);
    }
    if (request.count(http::field::expect) > 0 &&
        !beast::iequals(request[http::field::expect], "100-continue")) {
      return refuse(http::status::expectation_failed, "Expect: only 100-continue is understood");
    }
    if (request.count(http::field::expect) > 0 && version_ >= 11) {
      go_on_.emplace(http::status::continue_, version_);
      is_waiting_to_go_on_ = true;
      http::async_write(socket_, *go_on_,
                        [self = shared_from_this()](beast::error_code error, std::size_t) {
                          self->is_waiting_to_go_on_ = false;
                          if (self->phase_ != phase::arriving) return;
                          if (error) return self->shut();
                          self->feed();
                        });
    }
  }

  void refuse_coding() {
    constexpr int status = 415;
    begin_refusal();
    answer({.status = status,
            .body = server_.app->error_body(
                status, "Content-Encoding: expected one of gzip, deflate and identity"),
            .fields = {{"Accept-Encoding", "gzip, deflate"}}});
  }

  /// All fields of a name, as one list.
  [[nodiscard]] std::string joined(http::field name) const {
    std::string all;
    const auto [begin, end] = parser_->get().equal_range(name);
    for (auto at = begin; at != end; ++at) {
      if (at != begin) all += ',';
      all += view(at->value());
    }
    return all;
  }

  static std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }
  static std::string_view path_of(const http::request<arriving_body>& request) {
    std::string_view path = view(request.target());
    if (path.starts_with("http://")) {  // The absolute form, sent by proxies.
      path.remove_prefix(std::min(path.size(), path.find('/', 7)));
    }
    return path.substr(0, path.find('?'));
  }

  /// The request, after its header was read.
  [[nodiscard]] http_request described() const {
    const auto& request = parser_->get();
    return {.method = view(request.method_string()),
            .path = path_of(request),
            .body = {},
            .authorization = view(request[http::field::authorization]),
            .inference_header_length = view(request[inference_header_length]),
            .host = view(request[http::field::host]),
            .origin = view(request[http::field::origin]),
            .is_local = is_from_loopback_ && view(request.target()).starts_with('/') &&
                        std::ranges::none_of(request, [](const auto& f) { return is_of_proxy(f); }),
            .is_on_management_port = server_.settings.is_management_port};
  }

  void ask() {
    move_to(phase::asked);
    asked_.body = parser_->get().body().view();
    guard([&] { server_.app->asked(asked_, shared_from_this()); });
    if (is_asked()) watch();
  }

  /// Notices if the client leaves while its answer is being made.
  void watch() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](beast::error_code e) {
      if (e || !self->is_asked()) return;
      char byte = 0;
      beast::error_code error;
      const std::size_t got =
          self->socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, error);
      // Further bytes are a pipelined request, which must wait.
      if (got == 0 && error != asio::error::would_block) {
        self->give_up();
      }
    });
  }

  /// Sends the available bytes, one write at a time; without waiting if the system takes them at
  /// once.
  void pump() {
    count_unsent();
    if (!sending_.empty() || unsent_.empty()) return;
    sending_.swap(unsent_);
    if (phase_ == phase::answering && !pieces_) count(false);  // Before the client can know.
    beast::error_code later;  // The waiting write reports errors, not the caller.
    const std::size_t sent = socket_.write_some(asio::buffer(sending_), later);
    if (!later && sent == sending_.size()) return on_sent();
    move_to(phase_);
    const time_point now = steady_clock{}.now();
    clock_.await_taking(now);
    waits(now);
    untaken_ = queued();
    write_from(later ? 0 : sent);
  }
  /// @param done Bytes of `sending_` that the system has taken.
  void write_from(std::size_t done) {
    socket_.async_write_some(asio::buffer(sending_) + done,
                             [self = shared_from_this(), done](beast::error_code e, std::size_t n) {
                               if (self->phase_ == phase::closed) return;
                               if (e) return self->give_up();
                               self->guard([&] {
                                 const time_point now = steady_clock{}.now();
                                 self->look(n, now);
                                 if (done + n < self->sending_.size()) {
                                   return self->write_from(done + n);
                                 }
                                 self->clock_.stop_taking(now);
                                 self->server_.places.acts(self->place_);
                                 self->on_sent();
                               });
                             });
  }

  void on_sent() {
    sending_.clear();
    count_unsent();
    if (!unsent_.empty()) return pump();
    if (phase_ != phase::answering) return;
    if (pieces_) {  // After all others that are ready.
      return asio::post(server_.context, [self = shared_from_this()] {
        if (self->phase_ != phase::answering) return;
        self->guard([&] {
          self->append_piece();
          self->pump();
        });
      });
    }
    if (sending_.capacity() > 4 * http_piece) sending_ = {};
    if (unsent_.capacity() > 4 * http_piece) unsent_ = {};
    if (keep_alive_) return read();
    const bool may_linger = !server_.draining || server_.is_patient();
    if (may_linger && (is_refused_ || buffer_.size() > 0 || has_unread())) return linger();
    shut();  // A drain checks every few milliseconds for the rest.
  }

  tcp::socket socket_;
  http_server::state& server_;
  client_network from_;
  connection_places<session>::place place_{*this};
  connection_clock clock_{server_.limits};
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<arriving_body>> parser_;
  http_request asked_{};  // From the header: a trailer would add to its fields.
  std::optional<http::response<http::empty_body>> go_on_;
  std::function<void()> gone_;
  std::string unsent_;
  std::string sending_;
  unsigned version_ = 11;
  phase phase_ = phase::idle;
  bool is_counted_ = false;
  bool is_extra_ = false;  // Beyond the maximum: only for a probe.
  bool is_from_loopback_;
  bool is_refused_ = false;  // It may not have sent all of its request.
  bool is_kept_ = false;     // The app failed, and may still have its request.
  bool is_fresh_ = true;     // No request has come yet.
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool is_chunked_ = false;
  bool is_waiting_to_go_on_ = false;
  std::size_t header_size_ = 0;
  std::size_t body_limit_ = 0;  // Limit of the present request.
  double progress_ = 0;         // Bytes since the client was last not slow.
  bool is_spared_ = false;      // It kept its place because of unread bytes.
  std::size_t held_ = 0;        // Shared body bytes in use.
  std::size_t untaken_ = 0;     // Sent but not taken at the last look.
  held_bytes request_memory_;
  held_bytes answer_memory_;
  std::shared_ptr<http_body> pieces_;         // Rest of the answer.
  std::optional<decompressor> decompressor_;  // For a compressed body, until complete.
  std::optional<compressor> compressor_;      // For those pieces.
  std::size_t compressed_memory_ = 0;         // In addition to the text to send.
  preferred_coding preferred_;                // Coding of the answer to the present request.
};

}  // namespace

std::vector<std::shared_ptr<session>> http_server::state::everyone() const {
  std::vector<std::shared_ptr<session>> all;
  for (session* s : sessions) {
    // A session just released by another thread is about to be deleted here.
    if (auto living = s->weak_from_this().lock()) all.push_back(std::move(living));
  }
  return all;
}

std::pair<int, std::string> http_server::state::why_no_memory(std::size_t bytes) const {
  constexpr std::size_t kib = 1024;
  const std::size_t most = memory.limit();
  const std::size_t left = most - std::min(most, memory.held());
  const std::size_t wanted = (bytes + kib - 1) / kib;
  if (bytes > most) {
    return {413, fmt::format("the request needs {} KiB of memory, and all requests have {} ({})",
                             wanted, most / kib, settings.held_bytes_option)};
  }
  return {429, fmt::format("the request needs {} KiB of memory, and {} of the {} that all requests "
                           "have are left ({})",
                           wanted, left / kib, most / kib, settings.held_bytes_option)};
}

void http_server::state::accept() {
  acceptor.async_accept(peer, [this](beast::error_code e, tcp::socket socket) {
    // Also one that came just before the port was closed.
    if (!e) guarded(settings.name, "a connection failed", [&] { admit(std::move(socket)); });
    if (draining) return;
    if (e && e != asio::error::connection_aborted) {
      say_none_is_let_in(e);  // Probably no descriptors: they return as clients leave.
      accept_timer.expires_after(std::chrono::milliseconds{50});
      accept_timer.async_wait([this](beast::error_code stopped) {
        if (!stopped && !draining) accept();
      });
      return;
    }
    accept();
  });
}

void http_server::state::say_none_is_let_in(beast::error_code why) {
  const auto now = std::chrono::steady_clock::now();
  if (now < silent_until) return;
  silent_until = now + std::chrono::minutes{1};
  guarded(settings.name, "a refused client is not told why", [&] {  // For lack of memory: continue.
    log_line(
        severity::warning, log_stream::err, settings.name,
        fmt::format("cannot accept connections on port {}: {}; trying on", port, why.message()));
  });
}

void http_server::state::admit(tcp::socket socket) {
  // The last owner may be a thread that makes the answer.
  const auto end = [this](session* last) {
    asio::dispatch(context, [owned = std::unique_ptr<session>{last}] {});
  };
  const std::shared_ptr<session> s{
      new session{std::move(socket), *this, network_of(peer.address())}, end};
  if (places.is_full()) {
    make_room([&](time_point now) { return places.makes_way(s->from(), now); });
  }
  s->take_place();
  if (extras.size() > settings.probe_connections) {
    // Silent ones are closed first: probes send their request on connecting. Of those, the oldest
    // in the network that holds most.
    session* goes = s.get();
    std::size_t most = 0;
    for (session* other : extras) {
      if (!other->is_silent() || (goes != s.get() && places.held(other->from()) <= most)) continue;
      goes = other;
      most = places.held(other->from());
    }
    const auto last = goes->shared_from_this();
    last->guard([&] { last->turn_away(); });
    if (last == s) return;
  }
  s->read();
}

/// Makes the slow connection that `find` returns, if any, give up its place.
template <class Find>
void http_server::state::make_room(const Find& find) {
  const time_point now = steady_clock{}.now();
  for (int i = 0; i < max_asked; ++i) {
    session* const slow = find(now);
    if (slow == nullptr) return;
    const auto goes = slow->shared_from_this();
    bool went = true;
    goes->guard([&] { went = goes->make_way(now); });
    if (went) return;
  }
}

/// Accepts connections from the system's queue before the port is closed, which would reset them.
/// No other accept runs meanwhile.
void http_server::state::empty_the_queue() {
  (void)::listen(acceptor.native_handle(), 0);
  beast::error_code e;
  acceptor.non_blocking(true, e);
  while (!e || e == asio::error::connection_aborted) {
    tcp::socket socket{context};
    acceptor.accept(socket, peer, e);
    if (!e) guarded(settings.name, "a connection failed", [&] { admit(std::move(socket)); });
  }
  if (e != asio::error::would_block) say_none_is_let_in(e);
}

/// One timer for all connections: a timer each would cost a request more than its parsing.
void http_server::state::check_times() {
  const auto often =
      std::min(std::chrono::milliseconds{50},
               milliseconds_of(std::min({settings.timeouts.header_s, settings.timeouts.read_s,
                                         settings.timeouts.write_s}) /
                               4));
  clock_timer.expires_after(often + std::chrono::milliseconds{1});
  clock_timer.async_wait([this](beast::error_code e) {
    if (e) return;
    guarded(settings.name, "cannot look at the time", [this] {
      const time_point now = steady_clock{}.now();
      for (const auto& s : everyone()) s->guard([&] { s->check_time(now); });
      make_room([this](time_point at) { return places.makes_way(at); });
    });
    check_times();
  });
}

void http_server::state::begin_drain(std::chrono::milliseconds within) {
  if (draining) return;
  leaving = true;
  draining = true;
  guarded(settings.name, "the drain", [this] { empty_the_queue(); });
  beast::error_code ignored;
  acceptor.close(ignored);
  guarded(settings.name, "the drain", [this] { app->draining(); });
  patient_until = std::chrono::steady_clock::now() + milliseconds_of(settings.drain_patience_s);
  drain_timer.expires_after(within);
  drain_timer.async_wait([this](beast::error_code e) {
    if (e) return;
    const std::size_t left = under_way;
    guarded(settings.name, "the end of the drain", [this] {
      for (const auto& s : everyone()) s->close_now();
    });
    under_way = left;
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
  const bool patiently = is_patient();
  guarded(settings.name, "the drain", [&] {
    for (const auto& s : everyone()) s->guard([&] { s->close_if_idle(patiently); });
  });
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
  const auto address =
      asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host.c_str(), e);
  if (e) {
    throw config_error{fmt::format(
        "--host: got {}, expected an IP address, without brackets, or localhost", o.host)};
  }
  const tcp::endpoint endpoint{address, o.port};
  const auto fail = [&](const char* what) {
    if (e) {
      throw resource_error{fmt::format("cannot {} {}: {}", what, name_of(endpoint), e.message())};
    }
  };
  state_->acceptor.open(endpoint.protocol(), e);
  fail("open");
  state_->acceptor.set_option(asio::socket_base::reuse_address{true}, e);
  fail("configure");
  state_->acceptor.set_option(tcp::no_delay{true}, e);  // Connections inherit it from the port.
  fail("configure");
  state_->acceptor.bind(endpoint, e);
  fail("listen on");
  state_->acceptor.listen(tcp::acceptor::max_listen_connections, e);
  fail("listen on");
  const tcp::endpoint at = state_->acceptor.local_endpoint();
  state_->port = at.port();
  state_->url = "http://" + name_of(at);
}

std::uint16_t http_server::port() const { return state_->port; }
std::string http_server::url() const { return state_->url; }

void http_server::limit_connections(std::size_t most) {
  state_->settings.max_connections = std::max<std::size_t>(1, most);
  state_->places.resize(state_->settings.max_connections, state_->spares());
}
std::size_t http_server::max_connections() const noexcept {
  return state_->settings.max_connections;
}
std::size_t http_server::max_descriptors() const noexcept {
  // One more extra and one more lingering connection: it comes before another is closed.
  const std::size_t beyond = state_->settings.probe_connections + 1 + max_lingering + 1;
  constexpr std::size_t own = 5;  // The port, the context's own, the busy meter.
  return max_connections() + state_->spares() + beyond + own;
}

void http_server::run(http_app& app) {
  state& me = *state_;
  me.app = &app;
  me.accept();
  me.check_times();
  // Exceptions of handlers without a request, such as posted ones.
  while (!guarded(me.settings.name, "a task failed", [&me] { me.context.run(); })) continue;
}
bool http_server::is_busy() {
  busy_meter& meter = state_->meter;
  const time_point now = steady_clock{}.now();
  if (meter.is_due(now)) meter.sample(now, busy_time_of_this_thread());
  return meter.is_busy();
}

void http_server::leave() { state_->leaving = true; }
void http_server::drain(double within_s) {
  post([me = state_.get(), within = milliseconds_of(within_s)] { me->begin_drain(within); });
}
void http_server::stop() { state_->context.stop(); }
bool http_server::is_leaving() const noexcept { return state_->leaving; }
bool http_server::is_draining() const noexcept { return state_->draining; }
std::size_t http_server::under_way() const noexcept { return state_->under_way; }

byte_ledger& http_server::memory() noexcept { return state_->memory; }
std::pair<int, std::string> http_server::why_no_memory(std::size_t bytes) const {
  return state_->why_no_memory(bytes);
}

void http_server::post(std::function<void()> work) { asio::post(state_->context, std::move(work)); }

}  // namespace cohort::serve
