// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/http.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>

namespace cohort::serve::http_test {
namespace {

/// So long that nobody waits for their end here.
constexpr http_timeouts patient{.header_s = 3600, .idle_s = 3600, .read_s = 3600, .write_s = 3600};

/// More than the buffers of both sockets hold.
constexpr std::size_t large_size = std::size_t{16} << 20U;

/// Says back what it was asked; streams for paths that begin with /stream.
class echo final : public http_app {
 public:
  std::size_t body_limit(const http_request& head, std::size_t usual) override {
    return head.path == "/more" ? 2 * usual : usual;
  }
  void asked(const http_request& q, const std::shared_ptr<http_client>& client) override {
    if (q.path == "/wait") {  // Never answers.
      client->on_gone([this] { ++gone; });
    } else if (q.path == "/keep") {
      kept = client;
      client->on_gone([this] { ++gone; });
    } else if (q.path == "/take" || q.path == "/take/quietly") {  // And fails behind that.
      kept = client;
      body = q.body;
      if (q.path == "/take") client->on_gone([this] { ++gone; });
      throw std::runtime_error{"a fault"};
    } else if (q.path == "/throw") {
      throw std::runtime_error{"a fault"};
    } else if (q.path == "/throw/memory") {
      throw std::bad_alloc{};
    } else if (q.path == "/throw/late") {
      client->begin("text/plain");
      client->send("a");
      throw config_error{"too late to say"};
    } else if (q.path == "/large") {
      client->answer({.body = std::string(large_size, 'x')});
    } else if (q.path == "/pieces") {
      client->answer({.pieces = pieces});
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
  std::string error_body(int status, std::string_view why) override {
    return says_why ? std::string{why} : std::to_string(status);
  }
  void answered(int status) override { last = status; }
  std::optional<http_reply> early_answer(const http_request& head) override {
    CHECK(head.body.empty());
    if (head.path != "/denied") return std::nullopt;
    return http_reply{.status = 401,
                      .body = std::string{head.host} + " " + std::string{head.origin} +
                              (head.is_local ? " local" : " passed on") +
                              (head.is_on_management_port ? " managed" : "")};
  }
  void refused(http_bound full) override {
    ++(full == http_bound::bodies   ? without_room
       : full == http_bound::memory ? without_memory
                                    : turned_away);
  }
  void draining() override { drained = true; }
  [[nodiscard]] bool is_probe(std::string_view path) const override {
    if (path == "/fault") throw std::runtime_error{"a fault"};
    if (path == "/memory") throw std::bad_alloc{};
    return path == "/probe";
  }

  std::shared_ptr<http_client> kept;
  std::string_view body;  // Of what was taken.
  std::shared_ptr<http_body> pieces;
  int gone = 0;
  int last = 0;
  int without_room = 0;
  int without_memory = 0;
  int turned_away = 0;
  bool drained = false;
  bool says_why = false;
};

/// Writes "ab" as often as it is told to.
struct repeated final : http_body {
  repeated(std::size_t times, std::optional<std::size_t> bytes, std::function<void()> each = {})
      : left{times}, known{bytes}, then{std::move(each)} {}
  [[nodiscard]] std::optional<std::size_t> size() const override { return known; }
  bool append_to(std::string& out) override {
    if (then) then();
    out += "ab";
    return --left > 0;
  }
  std::size_t left;
  std::optional<std::size_t> known;
  std::function<void()> then;
};

TEST_CASE("answers are whole or streamed, clients that go are noticed, and a drain ends it") {
  http_server server{{.body_limit = 100}};
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
    // As large as the app says, announced or in chunks; behind one the next is as before.
    CHECK(c.ask("POST", "/more", std::string(200, 'x')).first == 202);
    const auto in_chunks = [](const std::string& path, const std::string& size, std::size_t n) {
      return "POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + size +
             "\r\n" + std::string(n, 'x') + "\r\n0\r\n\r\n";
    };
    c.send(in_chunks("/more", "c8", 200));
    CHECK(c.answer().first == 202);
    for (const auto& [path, size, n] :
         {std::tuple{"/more", "c9", 201}, std::tuple{"/b", "65", 101}}) {
      test::connection other{server.port()};
      other.send(in_chunks(path, size, static_cast<std::size_t>(n)));
      CHECK(other.answer().first == 413);
    }
    CHECK(test::connection{server.port()}.ask("POST", "/more", std::string(201, 'x')).first == 413);
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
  server.drain(5);
  thread.join();
  CHECK(stays.is_closed_by_server());
  CHECK(posted == 202);
  CHECK(app.gone == 1);
  CHECK(app.drained);
  CHECK(server.is_draining());
}
TEST_CASE("what is refused for its header is answered before its body comes") {
  http_server server{{.is_management_port = true}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const std::string head = "POST /denied HTTP/1.1\r\nHost: h\r\n";
  for (const char* more :
       {"Content-Length: 1000\r\n\r\nfew", "Transfer-Encoding: chunked\r\n\r\n",
        "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n", "Content-Length: 3\r\n\r\nall"}) {
    CAPTURE(more);
    test::connection c{server.port()};
    c.send(head + more);
    CHECK(c.answer() == std::pair{401, std::string{"h  local managed"}});
    CHECK(c.head.find("Connection: close\r\n") != std::string::npos);
    CHECK(c.is_closed_by_server());
  }
  {
    test::connection c{server.port()};
    c.send(head + "\r\n" + head +
           "Origin: o\r\nVia: 1.1 p\r\n\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    CHECK(c.answer().second == "h  local managed");
    CHECK(c.answer().second == "h o passed on managed");
    CHECK(c.answer().second == "GET /next ");
  }
  server.stop();
  thread.join();
  CHECK(server.under_way() == 0);
}
TEST_CASE("whoever makes an answer may be the last to let go of the client, on any thread") {
  http_server server{{}};
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
  server.drain(5);
  thread.join();
  CHECK(app.gone == 20);
}

TEST_CASE("a drain serves who has connected, and waits for no request that has not begun") {
  http_server server{{.timeouts = patient, .drain_patience_s = 2}};
  server.listen();
  echo app;
  test::connection waits{server.port()};  // Nobody has accepted it yet.
  waits.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
  test::connection half{server.port()};
  half.send("POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo");
  const test::connection silent{server.port()};
  server.drain(3600);
  std::thread thread{[&] { server.run(app); }};
  CHECK(waits.answer() == std::pair{202, std::string{"GET /a "}});
  CHECK(waits.is_closed_by_server());
  half.send("dy");
  CHECK(half.answer() == std::pair{202, std::string{"POST /b body"}});
  thread.join();
  CHECK(server.under_way() == 0);
}

TEST_CASE("a drain waits for the rest of a request no longer than its patience") {
  http_server server{{.timeouts = patient, .drain_patience_s = 0.05}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  std::vector<std::unique_ptr<test::connection>> halves;
  for (int i = 0; i < 200; ++i) {
    test::connection& half =
        *halves.emplace_back(std::make_unique<test::connection>(server.port()));
    half.send("POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    CHECK(half.answer().first == 100);  // So its header has been read.
    half.send("bo");
  }
  server.drain(3600);
  for (const auto& half : halves) CHECK(half->answer() == std::pair{503, std::string{"503"}});
  thread.join();
  CHECK(server.under_way() == 0);
}

TEST_CASE("who is refused while it sends can send the rest and gets the answer, within bounds") {
  http_server server{
      {.body_limit = 100, .timeouts = patient, .max_connections = 1, .probe_connections = 0}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const auto request = [](std::size_t mib) {  // The buffers of both sockets have no room for it.
    const std::string body(mib << 20U, 'x');
    return "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  };
  {
    test::connection large{server.port()};
    CHECK(large.send(request(17)));
    CHECK(large.answer().first == 413);
    CHECK(large.is_closed_by_server());
    test::connection next{server.port()};  // Who lingers is in nobody's way.
    CHECK(next.ask("GET", "/b").first == 202);
    for (int i = 0; i < 5; ++i) {
      test::connection beyond{server.port()};
      CHECK(beyond.send(request(17)));
      CHECK(beyond.answer() == std::pair{503, std::string{"503"}});
    }
    test::connection endless{server.port()};
    CHECK_FALSE(endless.send(request(256)));
    CHECK(endless.answer().first == 503);
    std::vector<std::unique_ptr<test::connection>> silent;
    for (int i = 0; i < 100; ++i) {  // More than may linger: the oldest are closed.
      silent.push_back(std::make_unique<test::connection>(server.port()));
      CHECK(silent.back()->answer().first == 503);
    }
    while (silent.front()->send("x")) std::this_thread::yield();
    CHECK(next.ask("GET", "/d").first == 202);
  }
  server.drain(3600);
  thread.join();
}

TEST_CASE("beyond the limit of connections only probes are let in, the latest first") {
  http_server server{{.max_connections = 0, .probe_connections = 2}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection first{server.port()};
  test::connection second{server.port()};
  test::connection third{server.port()};
  CHECK(first.answer() == std::pair{503, std::string{"503"}});  // It made room for the third.
  CHECK(third.ask("GET", "/probe").first == 202);
  CHECK(third.is_closed_by_server());
  CHECK(second.ask("GET", "/other") == std::pair{503, std::string{"503"}});
  CHECK(second.head.find("Retry-After: 1\r\n") != std::string::npos);
  test::connection says_nothing{server.port()};
  CHECK(says_nothing.answer().first == 503);
  server.stop();
  thread.join();
  CHECK(app.turned_away == 3);
}

TEST_CASE("bodies of all requests share a bound, which one alone may exceed") {
  http_server server{{.body_limit = 1000, .max_body_bytes = 100}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection large{server.port()};
  CHECK(large.ask("POST", "/a", std::string(500, 'x')).first == 202);
  test::connection whole{server.port()};  // It holds 60 until it is answered.
  whole.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\n\r\n" + std::string(60, 'x'));
  test::connection fits{server.port()};
  while (server.under_way() == 0) std::this_thread::yield();
  CHECK(fits.ask("POST", "/c", std::string(40, 'x')).first == 202);
  CHECK(fits.ask("POST", "/d", std::string(40, 'x')).first == 202);  // What was held is let go.
  CHECK(fits.ask("POST", "/e", std::string(41, 'x')) == std::pair{503, std::string{"503"}});
  CHECK(fits.head.find("Retry-After: 1\r\n") != std::string::npos);
  test::connection chunks{server.port()};
  chunks.send("POST /f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n29\r\n" +
              std::string(41, 'x') + "\r\n0\r\n\r\n");
  CHECK(chunks.answer().first == 503);
  server.stop();
  thread.join();
  CHECK(app.without_room == 2);
  CHECK(app.turned_away == 0);
}

TEST_CASE("a body that is announced and does not come takes no room") {
  http_server server{{.body_limit = 100, .max_body_bytes = 100}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const std::string header =
      "POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n";
  test::connection silent{server.port()};
  silent.send(header);
  CHECK(silent.wait_for_bytes());  // So its header has been read.
  test::connection begun{server.port()};
  begun.send(header);
  CHECK(begun.wait_for_bytes());
  begun.send(std::string(10, 'x'));
  test::connection other{server.port()};
  CHECK(other.ask("POST", "/b", std::string(60, 'x')).first == 202);
  server.stop();
  thread.join();
}

TEST_CASE("large bodies that fill the bound leave each connection its own part of it") {
  // A quarter for 16 connections, 1 KiB each. They share 48 KiB.
  constexpr std::size_t kib = 1024;
  http_server server{{.body_limit = 64 * kib,
                      .max_body_bytes = 64 * kib,
                      .max_connections = 16,
                      .probe_connections = 0}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection large{server.port()};
  large.send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" +
             std::string(50000, 'x'));
  while (server.under_way() == 0) std::this_thread::yield();
  test::connection small{server.port()};
  CHECK(small.ask("POST", "/b", std::string(kib / 2, 'x')).first == 202);
  test::connection more{server.port()};
  CHECK(more.ask("POST", "/c", std::string(2 * kib, 'x')) == std::pair{503, std::string{"503"}});
  CHECK(small.ask("POST", "/d", std::string(kib / 2, 'x')).first == 202);
  server.stop();
  thread.join();
}

TEST_CASE(
    "a body of known length arrives whole, in whatever parts, and behind it the next request") {
  http_server server{{}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection c{server.port()};
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 draw{seed};
  constexpr std::size_t reads[] = {0, 1, 16'383, 16'384, 16'385, 300'000, 2'000'000};
  for (int i = 0; i < 60; ++i) {
    std::string body(reads[draw() % std::size(reads)] + draw() % 3, '\0');
    for (char& letter : body) letter = static_cast<char>('a' + draw() % 26);
    const std::string all =
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
        "\r\n\r\n" + body + "GET /b HTTP/1.1\r\nHost: x\r\n\r\n";
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t part = 1 + draw() % all.size();
      c.send(all.substr(at, part));
      at += part;
    }
    const auto [status, text] = c.answer();
    CHECK(status == 202);
    CHECK(std::pair{text.size(), text == "POST /a " + body} == std::pair{body.size() + 8, true});
    CHECK(c.answer() == std::pair{202, std::string{"GET /b "}});
  }
  server.drain(5);
  thread.join();
}

TEST_CASE("requests sent in one go are answered in turn, however many") {
  http_server server{{}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection c{server.port()};
  std::string all;
  for (int i = 0; i < 2000; ++i) {
    all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
  }
  std::thread sender{[&] { c.send(all); }};
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(c.answer() == std::pair{202, "POST /" + std::to_string(i) + " abc"});
  }
  sender.join();
  server.drain(5);
  thread.join();
}

TEST_CASE("each time-out ends what it is for, and says so") {
  http_server server{{.timeouts = {.header_s = 0.2, .read_s = 0.2, .write_s = 0.2}}};
  server.listen();
  echo app;
  app.says_why = true;
  std::thread thread{[&] { server.run(app); }};
  {
    test::connection silent{server.port()};  // Nothing was asked: nothing is answered.
    CHECK(silent.is_closed_by_server());
    test::connection header{server.port()};
    header.send("GET /a HT");
    const auto [late, why_late] = header.answer();
    CHECK(late == 408);
    CHECK(test::gist{why_late} == "... header ... 0.2 s");
    CHECK(header.is_closed_by_server());
    test::connection body{server.port()};
    body.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo");
    const auto [slow, why_slow] = body.answer();
    CHECK(slow == 408);
    CHECK(test::gist{why_slow} == "... body ... 0.2 s ... 16 KiB a second");
    test::connection kept{server.port()};
    CHECK(kept.ask("GET", "/a").first == 202);
    kept.send("G");  // The header's time begins with this: nobody waits for 75 s here.
    CHECK(kept.answer().first == 408);
    test::connection takes_nothing{server.port()};
    takes_nothing.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    while (server.under_way() == 0) std::this_thread::yield();
    while (server.under_way() > 0) std::this_thread::yield();
  }
  server.drain(5);
  thread.join();
}

TEST_CASE("a drip ends at the least rate though every byte is in time; a long upload goes on") {
  // The drip has half a second and 1/1024 s for each KiB, the upload as long as it sends.
  http_server drips{{.timeouts = {.read_s = 0.5, .min_rate_kib = 1024}}};
  http_server uploads{{.timeouts = {.read_s = 2, .min_rate_kib = 1}}};
  std::array<echo, 2> apps;  // Each is its server's thread's.
  std::vector<std::thread> threads;
  for (http_server* s : {&drips, &uploads}) {
    s->listen();
    threads.emplace_back([&app = apps[threads.size()], s] { s->run(app); });
  }
  test::connection drip{drips.port()};
  drip.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
  test::connection paces{drips.port()};
  int dripped = 0;
  while (drip.send("x")) {
    ++dripped;
    CHECK(paces.ask("GET", "/b").first == 202);
  }
  CHECK(dripped < 1'000'000);
  CHECK(drip.answer().first == 408);
  test::connection upload{uploads.port()};
  upload.send("POST /stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "40\r\n" + std::string(64, 'x') + "\r\n";
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{2500};
  while (std::chrono::steady_clock::now() < end) {  // Longer than any time without a byte may be.
    CHECK(upload.send(chunk));
    CHECK(paces.ask("GET", "/b").first == 202);
  }
  upload.send("0\r\n\r\n");
  CHECK(upload.answer().first == 200);
  for (http_server* s : {&drips, &uploads}) s->drain(5);
  for (std::thread& t : threads) t.join();
}

TEST_CASE("a client that is refused may send the rest as long as it keeps the least rate") {
  http_server server{{.body_limit = 100, .timeouts = {.read_s = 0.5, .min_rate_kib = 1024}}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection drip{server.port()};
  drip.send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
  CHECK(drip.answer().first == 413);
  test::connection paces{server.port()};
  int dripped = 0;
  while (drip.send("x")) {
    ++dripped;
    CHECK(paces.ask("GET", "/b").first == 202);
  }
  CHECK(dripped < 100'000'000);
  server.drain(5);
  thread.join();
}

TEST_CASE("a kept connection serves who comes within the time that it was told, to its edge") {
  http_server server{{.timeouts = {.idle_s = 1}}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  {
    std::vector<std::unique_ptr<test::connection>> kept;
    for (int i = 0; i < 50; ++i) {
      kept.push_back(std::make_unique<test::connection>(server.port()));
      CHECK(kept.back()->ask("GET", "/a").first == 202);
      CHECK(kept.back()->head.find("Connection: keep-alive\r\nKeep-Alive: timeout=1\r\n") !=
            std::string::npos);
    }
    const auto edge = std::chrono::steady_clock::now() + std::chrono::milliseconds{1020};
    test::connection other{server.port()};
    while (std::chrono::steady_clock::now() < edge) CHECK(other.ask("GET", "/b").first == 202);
    for (const auto& c : kept) CHECK(c->ask("GET", "/a").first == 202);
    CHECK(kept.front()->is_closed_by_server());  // In the end.
    test::connection once{server.port()};
    once.send("GET /a HTTP/1.0\r\n\r\n");
    CHECK(once.answer().first == 202);
    CHECK(once.head.find("Keep-Alive") == std::string::npos);
  }
  server.drain(5);
  thread.join();
}

TEST_CASE("a slow client of the address that holds most places makes way for another address") {
  http_server server{
      {.timeouts = patient, .max_connections = 3, .probe_connections = 1, .slow_after_s = 0.05}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const auto from = [&](const char* address) {
    return std::make_unique<test::connection>(server.port(), 0, address);
  };
  const auto asked = from("127.0.0.2");
  asked->send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  while (server.under_way() == 0) std::this_thread::yield();
  const auto silent = from("127.0.0.2");
  silent->send("GET /a HT");
  const auto drips = from("127.0.0.2");
  CHECK(drips->ask("GET", "/b").first == 202);  // By now what `silent` sent is read.
  drips->send("GET /b HT");
  const auto same = from("127.0.0.2");  // Which holds the most itself.
  CHECK(same->ask("GET", "/c") == std::pair{503, std::string{"503"}});
  {
    const auto other = from("127.0.0.1");  // At once, on the spare place that it finds.
    CHECK(other->ask("GET", "/d").first == 202);
    CHECK(silent->answer() == std::pair{503, std::string{"503"}});  // Which it gives back.
    drips->send("TP/1.1\r\nHost: x\r\n\r\n");
    CHECK(drips->answer().first == 202);
    CHECK(other->ask("GET", "/d").first == 202);
    const auto probe = from("127.0.0.3");
    CHECK(probe->ask("GET", "/probe").first == 202);
  }
  asked->end_sending();
  CHECK(asked->is_closed_by_server());
  server.stop();
  thread.join();
  CHECK(app.gone == 1);  // Nobody made it leave before.
}

TEST_CASE("a byte now and then, of a header or a body, does not save a place") {
  http_timeouts fast = patient;  // However fast these clients send, it is less than this.
  fast.min_rate_kib = 1 << 24;
  http_server server{{.header_limit = std::size_t{1} << 28U,
                      .body_limit = std::size_t{1} << 30U,
                      .timeouts = fast,
                      .max_connections = 3,
                      .probe_connections = 0,
                      .slow_after_s = 0.05}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection kept{server.port()};
  CHECK(kept.ask("GET", "/a").first == 202);  // And is idle, but within its share of the places.
  test::connection waits{server.port(), 0, "127.0.0.2"};
  waits.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  for (const std::string begun :
       {"GET /a HTTP/1.1\r\nHost: x\r\nX: ",
        "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"}) {
    CAPTURE(begun);
    test::connection drips{server.port(), 0, "127.0.0.2"};
    drips.send(begun);
    std::atomic<bool> is_over = false;
    std::thread dripping{[&] {
      while (!is_over && drips.send("x")) std::this_thread::yield();
    }};
    test::connection other{server.port(), 0, "127.0.0.3"};  // On the spare place.
    other.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(drips.answer() == std::pair{503, std::string{"503"}});
    is_over = true;
    dripping.join();
    other.end_sending();
    CHECK(other.is_closed_by_server());
  }
  CHECK(kept.ask("GET", "/a").first == 202);
  server.stop();
  thread.join();
}

TEST_CASE(
    "a client that takes nothing of its answer makes way, too; one that takes it slowly not") {
  http_server server{
      {.timeouts = patient, .max_connections = 3, .probe_connections = 0, .slow_after_s = 1.5}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection slow{server.port(), 1 << 16, "127.0.0.2"};
  slow.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(slow.wait_for_bytes());
  test::connection takes_nothing{server.port(), 1 << 16, "127.0.0.2"};
  takes_nothing.send("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  test::connection asked{server.port(), 0, "127.0.0.2"};
  asked.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  while (server.under_way() < 3) std::this_thread::yield();
  test::connection other{server.port()};  // So one of them is to go.
  while (server.under_way() == 3) {
    CHECK(slow.wait_for_bytes());  // Too little for the server to send more.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{50};
    while (std::chrono::steady_clock::now() < until) CHECK(other.ask("GET", "/a").first == 202);
  }
  CHECK(takes_nothing.answer() == std::pair{0, std::string{}});  // Not all of it.
  CHECK(slow.answer().second.size() == large_size);
  asked.end_sending();
  CHECK(asked.is_closed_by_server());
  server.stop();
  thread.join();
  CHECK(app.gone == 1);
}

TEST_CASE("the address is told as a browser takes it, and localhost is one") {
  http_server local{{.host = "localhost"}};
  local.listen();
  CHECK(local.url() == "http://127.0.0.1:" + std::to_string(local.port()));
  http_server any{{.host = "::1"}};
  try {
    any.listen();
  } catch (const resource_error&) {
    return;  // This machine has no IPv6.
  }
  CHECK(any.url() == "http://[::1]:" + std::to_string(any.port()));
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
TEST_CASE("what an app throws is the answer of one request, and the end of nothing else") {
  http_server server{{}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  {
    test::connection fails{server.port()};
    CHECK(fails.ask("GET", "/throw") == std::pair{500, std::string{"500"}});
    CHECK(fails.head.find("Connection: close\r\n") != std::string::npos);
    test::connection hungry{server.port()};
    CHECK(hungry.ask("GET", "/throw/memory") == std::pair{503, std::string{"503"}});
    CHECK(hungry.head.find("Retry-After: 1\r\n") != std::string::npos);
  }
  server.post([] { throw std::runtime_error{"posted"}; });
  test::connection c{server.port()};
  CHECK(c.ask("GET", "/b").first == 202);
  {
    test::connection late{server.port()};
    CHECK(late.ask("GET", "/throw/late") == std::pair{200, std::string{"a(cut)"}});
  }
  app.pieces = std::make_shared<repeated>(3, std::nullopt, [n = 0]() mutable {
    if (++n == 2) throw std::bad_alloc{};
  });
  test::connection half{server.port()};
  CHECK(half.ask("GET", "/pieces") == std::pair{200, std::string{"ab(cut)"}});
  CHECK(c.ask("GET", "/b").first == 202);
  server.drain(5);
  thread.join();
  CHECK(server.under_way() == 0);
}

TEST_CASE("what an app has taken stays where it is, though the app throws then") {
  http_server server{{.timeouts = patient}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const std::string body(100, 'x');
  const auto taken = [&] {  // As whoever took it sees it now.
    std::promise<std::string> text;
    server.post([&] { text.set_value(std::string{app.body}); });
    return text.get_future().get();
  };
  const auto request = [&](const std::string& path) {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + body;
  };
  {
    // Who wants to know when the client leaves hears that it does.
    test::connection known{server.port()};
    known.send(request("/take"));
    CHECK(known.answer().first == 0);
    CHECK(taken() == body);
    CHECK(app.gone == 1);
  }
  {
    // Another is not known of, so the answer is the last of its connection: what follows, which
    // would take the place of what was taken, is not read.
    test::connection unknown{server.port()};
    unknown.send(request("/take/quietly") + request("/b"));
    CHECK(unknown.answer() == std::pair{500, std::string{"500"}});
    CHECK(unknown.answer().first == 0);
    CHECK(taken() == body);
    CHECK(app.gone == 1);
  }
  server.post([&] { app.kept.reset(); });
  server.drain(3600);
  thread.join();
  CHECK(server.under_way() == 0);
}

TEST_CASE("only who may come again is told when, if the app fails before it is asked") {
  http_server server{{.max_connections = 0, .probe_connections = 2}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection fault{server.port()};
  CHECK(fault.ask("GET", "/fault") == std::pair{500, std::string{"500"}});
  CHECK(fault.head.find("Retry-After") == std::string::npos);
  test::connection memory{server.port()};
  CHECK(memory.ask("GET", "/memory") == std::pair{503, std::string{"503"}});
  CHECK(memory.head.find("Retry-After: 1\r\n") != std::string::npos);
  server.stop();
  thread.join();
}

TEST_CASE("an answer in pieces arrives whole, with its length if that is known") {
  http_server server{{}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  test::connection c{server.port()};
  app.pieces = std::make_shared<repeated>(3, std::nullopt);
  CHECK(c.ask("GET", "/pieces") == std::pair{200, std::string{"ababab"}});
  CHECK(c.head.find("Transfer-Encoding: chunked") != std::string::npos);
  app.pieces = std::make_shared<repeated>(2, 4);
  CHECK(c.ask("GET", "/pieces") == std::pair{200, std::string{"abab"}});
  CHECK(c.head.find("Content-Length: 4\r\n") != std::string::npos);
  app.pieces = std::make_shared<repeated>(2, std::nullopt);
  c.send("GET /pieces HTTP/1.0\r\n\r\n");  // Which knows no chunks.
  CHECK(c.answer().first == 200);
  CHECK(c.head.find("chunked") == std::string::npos);
  while (c.wait_for_bytes()) continue;  // The server closes: that ends the body.
  server.drain(5);
  thread.join();
}

TEST_CASE("others are answered between two pieces of an answer") {
  http_server server{{}};
  server.listen();
  echo app;
  // As many pieces as it takes until another request was answered, and far too many if none is.
  auto many = std::make_shared<repeated>(std::size_t{1} << 20U, std::nullopt);
  many->then = [&app, all = many.get()] {
    if (app.last == 202) all->left = 1;
  };
  app.pieces = many;
  std::thread thread{[&] { server.run(app); }};
  test::connection large{server.port()};
  large.send("GET /pieces HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(large.wait_for_bytes());
  test::connection other{server.port()};
  CHECK(other.ask("GET", "/b").first == 202);
  const auto [status, body] = large.answer();
  CHECK(status == 200);
  CHECK_FALSE(body.ends_with("(cut)"));
  CHECK(body.size() < std::size_t{2} << 20U);
  server.drain(5);
  thread.join();
}

TEST_CASE("bodies that find no memory are refused, and what was held is given back") {
  constexpr std::size_t kib = 1024;
  http_server server{{.body_limit = 4096 * kib, .timeouts = patient, .max_held_bytes = 2048 * kib}};
  server.listen();
  echo app;
  std::thread thread{[&] { server.run(app); }};
  const auto post = [](std::size_t announced, std::size_t sent) {
    return "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(announced) +
           "\r\n\r\n" + std::string(sent, 'x');
  };
  {
    test::connection never{server.port()};
    never.send(post(2049 * kib, 0));
    CHECK(never.answer().first == 413);
    test::connection first{server.port()};
    first.send(post(500 * kib, 500 * kib - 1));
    while (server.memory().held() < 500 * kib - 1) std::this_thread::yield();
    test::connection second{server.port()};
    second.send(post(1600 * kib, 1600 * kib));
    CHECK(second.answer() == std::pair{429, std::string{"429"}});
    CHECK(second.head.find("Retry-After: 1\r\n") != std::string::npos);
    first.send("x");
    CHECK(first.answer().first == 202);
    test::connection third{server.port()};
    CHECK(third.ask("POST", "/a", std::string(500 * kib, 'x')).first == 202);
  }
  server.drain(5);
  thread.join();
  CHECK(app.without_memory == 2);
  CHECK(server.memory().held() == 0);
  const auto [status, why] = server.why_no_memory(2049 * kib);
  CHECK(status == 413);
  CHECK(test::gist{why} == "... 2049 KiB ... 2048 (max_held_bytes)");
}

}  // namespace
}  // namespace cohort::serve::http_test
