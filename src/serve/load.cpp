// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/load.hpp>

#include <cohort/core/clock.hpp>
#include <cohort/core/error.hpp>

#include <fmt/format.h>

#include <simdjson.h>
#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <utility>

#include "load_target.hpp"

namespace cohort::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

std::chrono::milliseconds patience(const load_options& o) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(o.give_up_s * 1e3)};
}

/// One GET, for metadata and metrics; gives up after `o.give_up_s`.
std::string get(const load_options& o, const std::string& host, const std::string& port,
                const std::string& path) {
  asio::io_context context;
  beast::tcp_stream stream{context};
  http::request<http::empty_body> request{http::verb::get, path, 11};
  request.set(http::field::host, host);
  request.set(http::field::connection, "close");
  if (!o.api_key.empty()) request.set(http::field::authorization, "Bearer " + o.api_key);
  beast::flat_buffer buffer;
  http::response<http::string_body> answer;
  beast::error_code failed;
  const auto next = [&](auto step) {
    return [&failed, step](beast::error_code e, const auto&) {
      if (e) {
        failed = e;
      } else {
        step();
      }
    };
  };
  const auto endpoints = tcp::resolver{context}.resolve(host, port, failed);
  if (!failed) {
    stream.expires_after(patience(o));
    const auto read = [&] { http::async_read(stream, buffer, answer, next([] {})); };
    const auto write = [&] { http::async_write(stream, request, next(read)); };
    stream.async_connect(endpoints, next(write));
    context.run();
  }
  if (failed) {
    throw resource_error{
        fmt::format("cannot read http://{}:{}{}: {}", host, port, path, failed.message())};
  }
  if (answer.result() != http::status::ok) {
    const bool is_other = path == "/v2" && answer.result() == http::status::not_found;
    const std::string what =
        fmt::format("http://{}:{}{} answers {}: {}", host, port, path, answer.result_int(),
                    is_other ? "not a server of the Open Inference Protocol (llm_server is not)"
                             : answer.body().substr(0, 200));
    if (answer.result_int() >= 500) throw resource_error{what};
    throw config_error{what};
  }
  return std::move(answer.body());
}

/// The generator: a timer that sends, and connections that wait for answers.
class generator {
 public:
  generator(const load_options& o, std::vector<load_target> targets)
      : options_{o},
        authorization_{o.api_key.empty() ? "" : "Bearer " + o.api_key},
        targets_{std::move(targets)},
        timer_{context_},
        interrupts_{context_},
        random_{o.seed},
        endpoints_{tcp::resolver{context_}.resolve(o.host, o.port)} {
    const auto seconds = static_cast<std::size_t>(std::ceil(o.duration_s));
    result_.good_per_second.resize(seconds);
    result_.sent_per_second.resize(seconds);
    result_.seconds = o.duration_s;
    for (const load_target& t : targets_) {
      result_.per_model[t.meta.name];
      result_.slo_ms[t.meta.name] = to_ms(t.meta.slo);
    }
    const double expected = o.rate * o.duration_s;
    verify_every_ = o.verify > 0 ? std::max(1.0, expected / static_cast<double>(o.verify)) : 0;
  }

  load_result run() {
    start_ = clock_.now() + std::chrono::milliseconds{20};
    intended_ = start_ + gap();
    end_ = start_ + from_seconds(options_.duration_s);
    arm();
    if (options_.ends_at_interrupt) {
      interrupts_.add(SIGINT);
      interrupts_.async_wait([this](beast::error_code e, int) {
        if (!e) interrupt();
      });
    }
    context_.run();
    // After the run: the reference may be slow, and must not delay sending.
    for (const answer_to_verify& a : to_verify_) verify(a);
    result_.send_delay_p99_ms = nearest_rank(send_delays_, 0.99);
    return std::move(result_);
  }

 private:
  struct sending {
    std::size_t model;
    std::size_t variant;
    time_point intended;
    bool verify;
  };
  struct answer_to_verify {
    sending of;
    std::string body;
    std::string json_length;
  };

  /// A connection; alive while it connects, waits or is kept for the next request.
  struct connection : std::enable_shared_from_this<connection> {
    explicit connection(generator& g) : owner{g}, stream{g.context_} {}
    generator& owner;
    beast::tcp_stream stream;
    beast::flat_buffer buffer;
    http::request<http::span_body<const char>> request;
    std::optional<http::response_parser<http::string_body>> parser;
    sending what{};
    bool connected = false;
    bool reused = false;

    void send(const sending& s) {
      what = s;
      parser.reset();
      reused = connected;
      if (connected) return write();
      stream.expires_after(patience(owner.options_));
      stream.async_connect(owner.endpoints_,
                           [self = shared_from_this()](beast::error_code e, const auto&) {
                             if (e) return self->owner.lost(*self, e);
                             self->connected = true;
                             beast::error_code ignored;
                             self->stream.socket().set_option(tcp::no_delay{true}, ignored);
                             self->write();
                           });
    }
    void write() {
      const load_target& t = owner.targets_[what.model];
      const load_body& body = t.bodies[what.variant];
      request = {http::verb::post, t.path, 11};
      request.set(http::field::host, owner.options_.host);
      if (!owner.authorization_.empty()) {
        request.set(http::field::authorization, owner.authorization_);
      }
      if (body.json_length == 0) {
        request.set(http::field::content_type, "application/json");
      } else {
        request.set(http::field::content_type, "application/octet-stream");
        request.set(json_length_field, fmt::to_string(body.json_length));
      }
      request.body() = {body.text.data(), body.text.size()};
      request.content_length(body.text.size());
      stream.expires_after(patience(owner.options_) + std::chrono::ceil<std::chrono::milliseconds>(
                                                          from_ms(owner.limit_ms(t))));
      http::async_write(stream, request,
                        [self = shared_from_this()](beast::error_code e, std::size_t) {
                          if (e) return self->owner.lost(*self, e);
                          self->read();
                        });
    }
    void read() {
      parser.emplace();
      parser->body_limit(std::uint64_t{64} << 20U);
      http::async_read(stream, buffer, *parser,
                       [self = shared_from_this()](beast::error_code e, std::size_t) {
                         if (e) return self->owner.lost(*self, e);
                         self->owner.answered(*self);
                       });
    }
  };

  duration gap() {
    const double mean = 1 / options_.rate;
    if (options_.arrivals == "uniform") return from_seconds(mean);
    if (options_.arrivals == "gamma") {
      return from_seconds(
          std::gamma_distribution<double>{options_.shape, mean / options_.shape}(random_));
    }
    return from_seconds(std::exponential_distribution<double>{1 / mean}(random_));
  }

  void arm() {
    timer_.expires_at(std::chrono::steady_clock::time_point{intended_.time_since_epoch()});
    timer_.async_wait([this](beast::error_code e) {
      if (!e) tick();
    });
  }

  void tick() {
    const time_point now = clock_.now();
    while (intended_ <= now && intended_ < end_) {
      sending s{.model = random_() % targets_.size(),
                .variant = random_() % load_variants,
                .intended = intended_,
                .verify = false};
      ++result_.sent_per_second[second_of(intended_)];
      count(s, [](load_tally& t) { ++t.sent; });
      if (verify_every_ > 0 && static_cast<double>(result_.all.sent) >= next_verify_) {
        s.verify = true;
        next_verify_ += verify_every_;
      }
      send_delays_.push_back(to_ms(now - intended_));
      waiting_.push_back(s);
      intended_ += gap();
    }
    dispatch();
    if (options_.progress && now - reported_ > std::chrono::milliseconds{100}) {
      reported_ = now;
      options_.progress(std::min(1.0, to_seconds(now - start_) / options_.duration_s));
    }
    if (intended_ < end_) {
      arm();
    } else {
      end_if_done();
    }
  }
  /// Stops sending; the result covers the time until now.
  void interrupt() {
    interrupts_.clear();
    timer_.cancel();
    end_ = std::min(end_, std::max(clock_.now(), start_ + std::chrono::milliseconds{1}));
    intended_ = std::max(intended_, end_);
    result_.was_interrupted = true;
    result_.seconds = to_seconds(end_ - start_);
    const auto seconds = static_cast<std::size_t>(std::ceil(result_.seconds));
    result_.good_per_second.resize(seconds);
    result_.sent_per_second.resize(seconds);
    end_if_done();
  }

  void dispatch() {
    while (!waiting_.empty()) {
      std::shared_ptr<connection> c;
      if (!idle_.empty()) {
        c = std::move(idle_.back());
        idle_.pop_back();
      } else if (open_ < options_.max_connections) {
        c = std::make_shared<connection>(*this);
        ++open_;
      } else {
        return;  // Its latency runs on: it is measured from the intended time.
      }
      const sending s = waiting_.front();
      waiting_.pop_front();
      c->send(s);
    }
  }

  template <class F>
  void count(const sending& s, F f) {
    f(result_.all);
    f(result_.per_model[targets_[s.model].meta.name]);
  }
  [[nodiscard]] std::size_t second_of(time_point t) const {
    return std::min(result_.sent_per_second.size() - 1,
                    static_cast<std::size_t>(to_seconds(t - start_)));
  }

  /// Largest latency of a good answer.
  [[nodiscard]] double limit_ms(const load_target& t) const {
    return options_.timeout_ms > 0 ? options_.timeout_ms : to_ms(t.meta.slo);
  }

  void answered(connection& c) {
    const sending s = c.what;
    const load_target& t = targets_[s.model];
    const double ms = to_ms(clock_.now() - s.intended);
    const unsigned status = c.parser->get().result_int();
    if (status == 200) {
      const bool good = ms <= limit_ms(t);
      if (good) ++result_.good_per_second[second_of(s.intended)];
      count(s, [&](load_tally& tally) {
        ++(good ? tally.good : tally.late);
        tally.latency_ms.push_back(ms);
      });
      if (s.verify) {
        auto& answer = c.parser->get();
        std::string json_length{answer[json_length_field]};
        to_verify_.push_back({s, std::move(answer.body()), std::move(json_length)});
      }
    } else {
      count(s, [&](load_tally& tally) {
        ++(status == 429 || status == 503 ? tally.refused
           : status == 504                ? tally.timed_out
                                          : tally.failed);
        if (status == 429 || status == 503) tally.refusal_ms.push_back(ms);
      });
    }
    if (c.parser->keep_alive()) {
      c.stream.expires_never();
      idle_.push_back(c.shared_from_this());
    } else {
      --open_;
    }
    after_answer();
  }

  /// Handles a lost connection. The server may just have closed a kept one: its request is sent
  /// once more.
  void lost(connection& c, beast::error_code why) {
    --open_;
    if (why != beast::error::timeout && c.reused && (!c.parser || !c.parser->got_some())) {
      waiting_.push_front(c.what);
    } else {
      count(c.what, [](load_tally& t) { ++t.connection; });
    }
    c.connected = false;
    after_answer();
  }

  void after_answer() {
    dispatch();
    end_if_done();
  }
  void end_if_done() {
    if (intended_ < end_ || !waiting_.empty() || open_ != idle_.size()) return;
    idle_.clear();
    interrupts_.cancel();
  }

  void verify(const answer_to_verify& a) {
    const load_target& t = targets_[a.of.model];
    ++result_.verified;
    if (!options_.check(t.meta, t.bodies[a.of.variant].row,
                        read_first_output(a.body, a.json_length))) {
      ++result_.wrong;
    }
  }

  const load_options& options_;
  std::string authorization_;
  std::vector<load_target> targets_;
  asio::io_context context_{1};
  asio::steady_timer timer_;
  asio::signal_set interrupts_;
  std::mt19937_64 random_;
  tcp::resolver::results_type endpoints_;
  steady_clock clock_;
  load_result result_;
  std::deque<sending> waiting_;
  std::vector<std::shared_ptr<connection>> idle_;
  std::size_t open_ = 0;
  std::vector<double> send_delays_;
  std::vector<answer_to_verify> to_verify_;
  time_point start_, intended_, end_, reported_;
  double verify_every_ = 0;
  double next_verify_ = 0;
};

/// Sums of the server's metrics for a run.
struct snapshot {
  std::map<std::uint32_t, std::uint64_t> batches_up_to;  // UINT32_MAX: all.
  double busy_seconds = 0;
  std::size_t devices = 0;
};

/// Nothing if the server has no metrics, or has gone.
std::optional<snapshot> read_metrics(const load_options& o) {
  snapshot s;
  std::string text;
  try {
    const bool is_apart = !o.management_port.empty();
    text = get(o, is_apart ? o.management_host : o.host, is_apart ? o.management_port : o.port,
               "/metrics");
  } catch (const error&) {
    return std::nullopt;
  }
  std::string_view rest{text};
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos || line.starts_with('#')) continue;
    const double value = std::strtod(std::string{line.substr(space + 1)}.c_str(), nullptr);
    if (line.starts_with("cohort_device_busy_seconds_total")) {
      s.busy_seconds += value;
      ++s.devices;
    } else if (line.starts_with("cohort_batch_size_bucket")) {
      const std::size_t le = line.find("le=\"");
      if (le == std::string_view::npos) continue;
      std::uint32_t bound = UINT32_MAX;
      std::from_chars(line.data() + le + 4, line.data() + line.size(), bound);
      s.batches_up_to[bound] += static_cast<std::uint64_t>(value);
    }
  }
  return s;
}

}  // namespace

double nearest_rank(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const double position = std::ceil(q * static_cast<double>(values.size()));
  const auto at = static_cast<std::ptrdiff_t>(std::max(1.0, position)) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

load_result run_load(const load_options& o) {
  expects(o.rate > 0 && o.duration_s > 0, "load: rate and duration_s must be above 0");
  expects(o.shape > 0 && o.shape <= 1, "load: shape must be in (0, 1]");
  expects(o.max_connections > 0, "load: max_connections must be at least 1");
  expects(static_cast<bool>(o.input) && (o.verify == 0 || o.check),
          "load: input, and check to verify, must be given");
  simdjson::dom::parser parser;
  simdjson::dom::element server;
  const std::string about = get(o, o.host, o.port, "/v2");
  if (parser.parse(about).get(server) != simdjson::SUCCESS) metadata_not_understood("itself");
  std::vector<std::string> names = o.models;
  std::string_view executor;
  std::string_view policy;
  bool emulated = false;
  if (server["parameters"]["executor"].get(executor) != simdjson::SUCCESS) executor = "";
  if (server["parameters"]["policy"].get(policy) != simdjson::SUCCESS) policy = "";
  if (server["parameters"]["emulated"].get(emulated) != simdjson::SUCCESS) emulated = false;
  if (simdjson::dom::array served;
      names.empty() && server["parameters"]["models"].get(served) == simdjson::SUCCESS) {
    for (const simdjson::dom::element e : served) {
      if (std::string_view n; e.get(n) == simdjson::SUCCESS) names.emplace_back(n);
    }
  }
  if (names.empty()) throw config_error{"load: the server lists no models"};
  std::vector<load_target> targets;
  for (const std::string& name : names) {
    targets.push_back(make_load_target(o, name, get(o, o.host, o.port, "/v2/models/" + name)));
  }
  const std::optional<snapshot> before = read_metrics(o);
  const auto begun = std::chrono::steady_clock::now();
  load_options sending = o;
  if (emulated) sending.verify = 0;
  load_result r = generator{sending, std::move(targets)}.run();
  r.executor = executor;
  r.policy = policy;
  r.emulated = emulated;
  const std::optional<snapshot> after = before ? read_metrics(o) : std::nullopt;
  if (!after) return r;
  // Devices also work for some time after the last request was sent.
  const std::chrono::duration<double> counted = std::chrono::steady_clock::now() - begun;
  r.devices = after->devices;
  for (const auto& [bound, count] : after->batches_up_to) {
    const auto earlier = before->batches_up_to.find(bound);
    r.batches_up_to[bound] = count - (earlier == before->batches_up_to.end() ? 0 : earlier->second);
  }
  if (after->devices > 0) {
    r.busy_fraction = (after->busy_seconds - before->busy_seconds) /
                      (counted.count() * static_cast<double>(after->devices));
  }
  return r;
}

}  // namespace cohort::serve
