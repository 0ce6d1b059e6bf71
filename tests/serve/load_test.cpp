// SPDX-License-Identifier: Apache-2.0
// The load generator against servers that misbehave: a thread that answers by a script.
#include <cohort/serve/load.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <support/complaint.hpp>
#include <thread>
#include <vector>

namespace cohort::serve::load_test {
namespace {

/// Accepts connections and passes each request's first line to a script, whose answer is sent; an
/// empty one leaves the client waiting.
class fake_server {
 public:
  using script = std::function<std::string(const std::string& line)>;

  explicit fake_server(script s)
      : script_{std::move(s)}, listener_{socket(AF_INET, SOCK_STREAM, 0)} {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(listen(listener_, 64) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    acceptor_ = std::thread{[this] { run(); }};
  }
  ~fake_server() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock{mutex_};
      for (const int c : clients_) shutdown(c, SHUT_RDWR);
    }
    for (std::thread& t : threads_) t.join();
    for (const int c : clients_) close(c);
    close(listener_);
  }
  fake_server(const fake_server&) = delete;
  fake_server& operator=(const fake_server&) = delete;

  [[nodiscard]] std::string port() const { return std::to_string(port_); }
  std::atomic<int> posts{0};

 private:
  void run() {
    for (;;) {
      const int c = accept(listener_, nullptr, nullptr);
      if (c < 0) return;
      const std::lock_guard lock{mutex_};
      clients_.push_back(c);
      threads_.emplace_back([this, c] { serve(c); });
    }
  }
  void serve(int c) {
    std::string in;
    char bytes[4096];
    for (;;) {
      const ssize_t n = recv(c, bytes, sizeof(bytes), 0);
      if (n <= 0) return;
      in.append(bytes, static_cast<std::size_t>(n));
      const std::size_t end = in.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const std::size_t length = in.find("Content-Length: ");
      const std::size_t body = length == std::string::npos ? 0 : std::stoul(in.substr(length + 16));
      if (in.size() < end + 4 + body) continue;
      const std::string line = in.substr(0, in.find("\r\n"));
      in.erase(0, end + 4 + body);
      if (line.starts_with("POST")) ++posts;
      const std::string out = script_(line);
      if (out == "close") {
        shutdown(c, SHUT_RDWR);
        return;
      }
      if (!out.empty()) (void)!send(c, out.data(), out.size(), MSG_NOSIGNAL);
    }
  }

  script script_;
  int listener_;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::vector<int> clients_;
  std::vector<std::thread> threads_;
};

std::string ok(std::string_view body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string{body};
}
std::string model_with(std::string_view shape, std::string_view datatype = "FP32") {
  return ok(R"({"name":"m","inputs":[{"name":"x","datatype":")" + std::string{datatype} +
            R"(","shape":)" + std::string{shape} +
            R"(}],"outputs":[],"parameters":{"slo_ms":1000}})");
}
/// Answers metadata as a server would, without metrics, and every POST by `post`.
fake_server::script answering(std::function<std::string()> post, std::string model) {
  return [post = std::move(post), model = std::move(model)](const std::string& line) {
    if (line.starts_with("GET /v2/models/m ")) return model;
    if (line.starts_with("GET /v2 ")) return ok(R"({"parameters":{"models":["m"]}})");
    if (line.starts_with("POST")) return post();
    return std::string{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"};
  };
}
load_options options_for(const fake_server& s) {
  load_options o;
  o.port = s.port();
  o.rate = 100;
  o.duration_s = 0.3;
  o.arrivals = "uniform";
  o.max_connections = 4;
  o.give_up_s = 5;
  o.input = [](const model_meta& m, std::uint64_t) {
    return std::vector<std::byte>(m.inputs.front().bytes());
  };
  return o;
}

TEST_CASE("a server without metrics or description is measured all the same") {
  fake_server s{answering([] { return ok("{}"); }, model_with("[-1,2]"))};
  const load_result r = run_load(options_for(s));
  CHECK(r.all.sent > 20);
  CHECK(r.all.good == r.all.sent);
  CHECK(r.executor.empty());
  CHECK(r.devices == 0);
  CHECK(r.batches_up_to.empty());
}
TEST_CASE("metadata that cannot be served is refused in one line") {
  for (const char* shape :
       {"[-1,-5]", "[-1,0]", "[-1,1099511627776,1099511627776]", "[-1,17179869184]"}) {
    CAPTURE(shape);
    fake_server s{answering([] { return ok("{}"); }, model_with(shape))};
    CHECK_THROWS_WITH_AS((void)run_load(options_for(s)),
                         doctest::Contains("metadata of m: x: shape: "), config_error);
    CHECK(s.posts == 0);
  }
  fake_server s{answering([] { return ok("{}"); }, model_with("[-1,2]", "BYTES"))};
  CHECK_THROWS_WITH_AS((void)run_load(options_for(s)),
                       doctest::Contains("metadata of m: x: datatype: got BYTES"), config_error);
}
TEST_CASE("a model that is not served is the caller's error, a server that cannot answer is not") {
  fake_server other{[](const std::string& line) {
    return line.starts_with("GET /v2 ") ? ok(R"({"parameters":{"models":["m"]}})")
                                        : "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
  }};
  CHECK_THROWS_WITH_AS((void)run_load(options_for(other)), doctest::Contains("/m answers 404"),
                       config_error);
  fake_server text{
      [](const std::string&) { return "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"; }};
  CHECK(test::gist_of<config_error>([&] { (void)run_load(options_for(text)); }) ==
        "... /v2 ... 404: ... Open Inference Protocol");
  fake_server busy{[](const std::string&) {
    return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
  }};
  CHECK_THROWS_WITH_AS((void)run_load(options_for(busy)), doctest::Contains("/v2 answers 503"),
                       resource_error);
}
TEST_CASE("a silent server is given up") {
  fake_server s{[](const std::string&) { return std::string{}; }};
  load_options o = options_for(s);
  o.give_up_s = 0.1;
  CHECK_THROWS_WITH_AS((void)run_load(o), doctest::Contains("cannot read http://127.0.0.1"),
                       resource_error);
}
TEST_CASE("a request that was given up is lost, not sent again") {
  std::atomic<int> answered{0};
  fake_server s{
      answering([&] { return answered++ < 4 ? ok("{}") : std::string{}; }, model_with("[-1,2]"))};
  load_options o = options_for(s);
  o.give_up_s = 0.1;
  const load_result r = run_load(o);
  CHECK(r.all.good == 4);
  CHECK(r.all.connection == r.all.sent - 4);
  CHECK(s.posts == static_cast<int>(r.all.sent));
}
TEST_CASE("a request is not given up before its deadline") {
  fake_server s{answering(
      [] {
        std::this_thread::sleep_for(std::chrono::milliseconds{200});  // Twice the patience.
        return ok("{}");
      },
      model_with("[-1,2]"))};
  load_options o = options_for(s);
  o.give_up_s = 0.1;
  o.rate = 20;
  const load_result r = run_load(o);
  CHECK(r.all.sent > 0);
  CHECK(r.all.connection == 0);
}
TEST_CASE("a request on a kept connection that the server closes is sent once more") {
  std::atomic<int> posts{0};
  fake_server s{answering([&] { return posts++ % 2 == 0 ? ok("{}") : std::string{"close"}; },
                          model_with("[-1,2]"))};
  load_options o = options_for(s);
  o.max_connections = 1;
  const load_result r = run_load(o);
  CHECK(r.all.good == r.all.sent);
  CHECK(r.all.connection == 0);
}
TEST_CASE("a run outlives its server") {
  std::atomic<int> posts{0};
  fake_server s{answering([&] { return posts++ < 5 ? ok("{}") : std::string{"close"}; },
                          model_with("[-1,2]"))};
  const load_result r = run_load(options_for(s));
  CHECK(r.all.good == 5);
  CHECK(r.all.good + r.all.connection == r.all.sent);
}
TEST_CASE("an interrupted run tells what it has done") {
  std::atomic<int> posts{0};
  fake_server s{answering(
      [&] {
        if (++posts == 10) std::raise(SIGINT);
        return ok("{}");
      },
      model_with("[-1,2]"))};
  load_options o = options_for(s);
  o.duration_s = 3600;
  o.ends_at_interrupt = true;
  const load_result r = run_load(o);
  CHECK(r.was_interrupted);
  CHECK(r.all.sent >= 10);
  CHECK(r.all.good + r.all.late == r.all.sent);
  CHECK(r.sent_per_second.size() == r.good_per_second.size());
}
TEST_CASE("load options outside of their ranges are refused") {
  CHECK_THROWS_AS((void)run_load({}), config_error);
  load_options o;
  o.rate = 1;
  o.max_connections = 0;
  CHECK(test::gist_of<config_error>([&] { (void)run_load(o); }) ==
        "load: max_connections ... at least 1");
}
}  // namespace
}  // namespace cohort::serve::load_test
