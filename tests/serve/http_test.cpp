// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/http.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <support/child_server.hpp>

namespace cohort::serve {
namespace {

/// Says back what it was asked; streams for paths that begin with /stream.
class echo final : public http_app {
 public:
  void asked(const http_request& q, const std::shared_ptr<http_client>& client) override {
    if (q.path == "/wait") {  // Never answers.
      client->on_gone([this] { ++gone; });
    } else if (q.path == "/keep") {
      kept = client;
      client->on_gone([this] { ++gone; });
    } else if (q.path == "/stream") {
      client->begin("text/plain");
      for (const char c : q.body) client->send(std::string(1, c));
      client->end();
      client->send("after the end");
    } else {
      client->answer({.status = 202,
                      .body = std::string{q.method} + " " + std::string{q.path} + " " +
                              std::string{q.body} + std::string{q.authorization},
                      .fields = {{"X-More", "yes"}}});
      client->answer({.body = "twice"});
    }
  }
  std::string error_body(int status, std::string_view) override { return std::to_string(status); }
  void answered(int status) override { last = status; }
  void draining() override { drained = true; }

  std::shared_ptr<http_client> kept;
  int gone = 0;
  int last = 0;
  bool drained = false;
};

TEST_CASE("answers are whole or streamed, clients that go are noticed, and a signal ends it") {
  http_server server{{.body_limit = 100, .drain_timeout_s = 5}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  {
    test::connection c{server.port()};
    CHECK(c.ask("PUT", "http://h/a?b", "body", "Authorization: key\r\n") ==
          std::pair{202, std::string{"PUT /a bodykey"}});
    CHECK(c.head.find("X-More: yes\r\n") != std::string::npos);
    CHECK(c.ask("POST", "/stream", "abc") == std::pair{200, std::string{"abc"}});
    CHECK(c.ask("GET", "/b").first == 202);  // The connection lives on.
    CHECK(c.ask("POST", "/b", std::string(101, 'x')) == std::pair{413, std::string{"413"}});
    CHECK(c.is_closed_by_server());
  }
  {
    test::connection waits{server.port()};
    waits.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    test::connection c{server.port()};
    CHECK(c.ask("GET", "/c").first == 202);
  }
  int posted = 0;
  test::connection stays{server.port()};
  CHECK(stays.ask("GET", "/d").first == 202);
  server.post([&] { posted = app.last; });
  CHECK(stays.ask("GET", "/e").first == 202);
  CHECK(std::raise(SIGTERM) == 0);
  thread.join();
  CHECK(stays.is_closed_by_server());
  CHECK(posted == 202);
  CHECK(app.gone == 1);
  CHECK(app.drained);
  CHECK(server.is_draining());
}
TEST_CASE("whoever makes an answer may be the last to let go of the client, on any thread") {
  http_server server{{.drain_timeout_s = 5}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  std::thread others{[&] {
    for (int i = 0; i < 100; ++i) {
      test::connection other{server.port()};
      CHECK(other.ask("GET", "/c").first == 202);
    }
  }};
  for (int i = 0; i < 20; ++i) {
    {
      test::connection leaves{server.port()};
      leaves.send("GET /keep HTTP/1.1\r\nHost: x\r\n\r\n");
      leaves.end_sending();
      CHECK(leaves.is_closed_by_server());  // It counts as gone.
    }
    std::promise<std::shared_ptr<http_client>> taken;
    server.post([&] { taken.set_value(std::exchange(app.kept, nullptr)); });
    std::shared_ptr<http_client> last = taken.get_future().get();
    REQUIRE(last != nullptr);
    last.reset();  // Here; in the server others come and go.
  }
  others.join();
  CHECK(std::raise(SIGTERM) == 0);
  thread.join();
  CHECK(app.gone == 20);
}

TEST_CASE("a port in use is an exhausted resource, a host that is none a bad setting") {
  http_server first{{}};
  first.listen();
  http_server second{{.port = first.port()}};
  CHECK_THROWS_WITH_AS(second.listen(), doctest::Contains("cannot listen on 127.0.0.1:"),
                       resource_error);
  http_server nowhere{{.host = "nowhere"}};
  CHECK_THROWS_AS(nowhere.listen(), config_error);
}
}  // namespace
}  // namespace cohort::serve
