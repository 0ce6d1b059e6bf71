// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/server_life.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/scratch_file.hpp>
#include <support/soon.hpp>

namespace cohort::serve::server_life_test {
namespace {

/// A server of one page, which is slow to answer where it is told to be.
class page final : public http_app, public managed {
 public:
  explicit page(http_server& http) : http_{http} {}
  void asked(const http_request& q, const std::shared_ptr<http_client>& client) override {
    if (q.path == "/never") return;
    client->answer(q.path == "/ready" ? ready() : http_reply{.body = "page"});
  }
  std::string error_body(int status, std::string_view) override { return std::to_string(status); }
  void answered(int) override {}
  void draining() override { ++drains; }
  http_reply live() override { return page_of({.body = "live"}); }
  http_reply ready() override { return page_of({.status = http_.is_leaving() ? 503 : 200}); }
  http_reply metrics() override { return page_of({.body = "metrics"}); }
  /// The last one answers all.
  void manage(const http_request& q, http_answer answer) override {
    if (!q.path.starts_with("/held/")) return managed::manage(q, std::move(answer));
    held.emplace_back(std::string{q.path} + " " + std::string{q.body}, std::move(answer));
    ++holds;
    if (q.path != "/held/last") return;
    http_.post([this] {  // On the thread of the service.
      for (const auto& [body, to] : std::exchange(held, {})) to({.body = body});
    });
  }
  std::optional<http_reply> early_answer(const http_request& head) override {
    if (head.path != "/denied") return std::nullopt;
    return http_reply{.status = head.is_on_management_port ? 403 : 401};
  }
  std::vector<std::pair<std::string, http_answer>> held;
  std::atomic<std::size_t> holds{0};  // So many came, some of which may be answered.
  int drains = 0;
  std::atomic<bool> has_gone{false};

 private:
  [[nodiscard]] http_reply page_of(http_reply r) const {
    CHECK_FALSE(has_gone);
    return r;
  }
  http_server& http_;
};

std::uint16_t port_of(const std::string& url) {
  REQUIRE(url.starts_with(" management http://127.0.0.1:"));
  return static_cast<std::uint16_t>(std::stoi(url.substr(29)));
}

TEST_CASE("paths of the management port are those of both servers, and short ones") {
  CHECK(page_at("/live") == managed_page::live);
  CHECK(page_at("/health") == managed_page::live);
  CHECK(page_at("/v2/health/live") == managed_page::live);
  CHECK(page_at("/ready") == managed_page::ready);
  CHECK(page_at("/v2/health/ready") == managed_page::ready);
  CHECK(page_at("/metrics") == managed_page::metrics);
  CHECK(page_at("/metrics/") == managed_page::none);
  CHECK(page_at("") == managed_page::none);
}

TEST_CASE("a signal begins a lame-duck phase, in which it serves, and then a drain") {
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {.management_port = 0, .lame_duck_s = 0.2}};
  life.begin();
  int started = 0;
  life.become_ready([&] { ++started; });
  CHECK(started == 1);
  test::connection m{port_of(life.management_url())};
  CHECK(m.ask("GET", "/live") == std::pair{200, std::string{"live"}});
  CHECK(m.ask("GET", "/metrics") == std::pair{200, std::string{"metrics"}});
  CHECK(m.ask("GET", "/ready").first == 200);
  const std::uint16_t port = service.port();
  test::connection c{port};
  CHECK(c.ask("GET", "/").second == "page");
  CHECK(std::raise(SIGTERM) == 0);
  while (m.ask("GET", "/ready").first == 200) {
  }
  life.wait();
  CHECK(c.is_closed_by_server());
  CHECK(app.drains == 1);
  CHECK(m.ask("GET", "/ready").first == 503);  // To its end.
  CHECK_FALSE(test::is_listened_on(port));
  int released = 0;
  const int status = life.end([&] {
    ++released;
    app.has_gone = true;
    CHECK(m.ask("GET", "/live") == std::pair{200, std::string{"live"}});
    CHECK(m.ask("GET", "/ready").first == 503);
    CHECK(m.ask("GET", "/metrics") == std::pair{200, std::string{"metrics"}});
  });
  CHECK(released == 1);
  CHECK(status == 0);
}

TEST_CASE("what is left at the end of the drain is counted, and in the exit status") {
  http_server service{{}};
  page app{service};
  server_life life{
      service, app, app, {.lame_duck_s = 0, .drain_timeout_s = 0.05, .end_patience_s = 60}};
  life.begin();
  life.become_ready([] {});
  test::connection one{service.port()};
  one.send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
  test::connection two{service.port()};
  two.send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
  test::connection last{service.port()};
  CHECK(last.ask("GET", "/").first == 200);
  CHECK(std::raise(SIGINT) == 0);
  life.wait();
  CHECK(life.end([] {}) == exit_left_requests);
  CHECK(service.under_way() == 2);
  CHECK(one.is_closed_by_server());
}

TEST_CASE("a server that never becomes ready ends when its life does") {
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {}};
  life.begin();
  test::connection c{service.port()};
  CHECK(c.ask("GET", "/").first == 200);
  CHECK(life.management_url().empty());
}

TEST_CASE("other paths of the management port are the app's, which may answer on any thread") {
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {.management_port = 0}};
  life.begin();
  const std::uint16_t port = port_of(life.management_url());
  test::connection m{port};
  CHECK(m.ask("GET", "/other") == std::pair{404, std::string{R"({"error":"/other is unknown"})"}});
  CHECK(m.ask("GET", "/denied").first == 403);
  CHECK(test::connection{service.port()}.ask("GET", "/denied").first == 401);
  test::connection first{port};
  first.send("POST /held/first HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  REQUIRE(test::soon([&] { return app.holds == 1; }));
  {
    test::connection leaves{port};
    leaves.send("GET /held/gone HTTP/1.1\r\nHost: x\r\n\r\n");
    REQUIRE(test::soon([&] { return app.holds == 2; }));
  }
  CHECK(m.ask("GET", "/held/last") == std::pair{200, std::string{"/held/last "}});
  CHECK(first.answer() == std::pair{200, std::string{"/held/first abc"}});
  CHECK(first.ask("GET", "/live").first == 200);
  // One that is never answered keeps nobody from the end.
  test::connection never{port};
  never.send("GET /held/never HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(test::soon([&] { return app.holds == 4; }));
}

TEST_CASE("who waits for the app on the management port at the end is told that it is not ready") {
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {.management_port = 0, .lame_duck_s = 0}};
  life.begin();
  life.become_ready([] {});
  const std::uint16_t port = port_of(life.management_url());
  test::connection waits{port};
  waits.send("GET /held/one HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(test::soon([&] { return app.holds == 1; }));
  CHECK(std::raise(SIGTERM) == 0);
  life.wait();
  CHECK(life.end([&] {
    CHECK(waits.answer().first == 503);
    for (const auto& [body, to] : std::exchange(app.held, {})) to({.body = body});  // In vain.
    CHECK(waits.ask("GET", "/live") == std::pair{200, std::string{"live"}});
  }) == 0);
}

TEST_CASE("SIGHUP reads the files of keys again") {
  const std::string file = test::scratch("keys");
  test::spill(file, "old\n");
  key_ring keys{{}, "--keys", file};
  key_ring without_file{{"given"}, "--keys", ""};
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {.keys = {&without_file, &keys}}};
  life.begin();
  test::spill(file, "new\n");
  CHECK(std::raise(SIGHUP) == 0);
  CHECK(test::soon([&] { return keys.admits("Bearer new"); }));
  CHECK_FALSE(keys.admits("Bearer old"));
  test::connection c{service.port()};
  CHECK(c.ask("GET", "/").first == 200);
  std::remove(file.c_str());
}

TEST_CASE("SIGHUP without files of keys ends nothing") {
  key_ring without_file{{"given"}, "--keys", ""};
  for (const std::vector<key_ring*>& keys :
       {std::vector<key_ring*>{}, std::vector<key_ring*>{&without_file}}) {
    http_server service{{}};
    page app{service};
    server_life life{service, app, app, {.keys = keys}};
    CHECK(std::raise(SIGHUP) == 0);
  }
}

TEST_CASE(
    "what is wrong with a request of the management port is said in JSON, as its label says") {
  http_server service{{}};
  page app{service};
  server_life life{service, app, app, {.management_port = 0}};
  life.begin();
  const std::string get = "GET /live HTTP/1.1\r\n";
  const std::string post = "POST /held/a HTTP/1.1\r\nHost: x\r\n";
  const std::pair<std::string, int> bad[] = {
      {"no HTTP at all\r\n\r\n", 400},
      {get + "Host: x\r\nHost: y\r\n\r\n", 400},
      {get + "Host: x\r\nField: " + std::string(20'000, 'x') + "\r\n\r\n", 431},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {post + "Content-Length: 262145\r\n\r\n", 413},
      {"POST /live HTTP/1.1\r\nHost: x\r\n\r\n", 405}};
  for (const auto& [bytes, status] : bad) {
    CAPTURE(status);
    test::connection m{port_of(life.management_url())};
    m.send(bytes);
    const auto [got, text] = m.answer();
    CHECK(got == status);
    CHECK(m.head.find("Content-Type: application/json\r\n") != std::string::npos);
    CHECK(text.starts_with(R"({"error":")"));
    CHECK(text.ends_with("\"}"));
  }
}

TEST_CASE("a management port that is taken is named as what it is") {
  http_server first{{}};
  first.listen();
  http_server service{{}};
  page app{service};
  const life_options taken{.management_port = first.port()};
  CHECK(test::gist_of<resource_error>([&] { server_life{service, app, app, taken}; }) ==
        "--management-port: ... 127.0.0.1:" + std::to_string(first.port()));
}

}  // namespace
}  // namespace cohort::serve::server_life_test
