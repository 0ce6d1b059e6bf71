// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/http.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <serve/compression.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::serve::compression_test {
namespace {

using namespace std::string_literals;
using coding = content_coding;
using result = decompressor::result;

// The same line by Python's gzip, its zlib, and its zlib without a header.
const std::string line = "one line of text, one line of text";
const std::string raw_line =
    "\xcb\xcf\x4b\x55\xc8\xc9\x04\x12\xf9\x69\x0a\x25\xa9\x15\x25\x3a\x0a\xf9\x68\x22\x00"s;
const std::string zlib_line = "\x78\x9c"s + raw_line + "\xd2\x2a\x0c\x15"s;
const std::string gzip_line =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03"s + raw_line + "\x0c\xad\x54\x2c\x22\x00\x00\x00"s;

/// What bytes that come in these parts are decompressed to, and the status of a refusal.
std::pair<int, std::string> decompressed(coding c, const std::vector<std::string>& parts,
                                         std::size_t limit = 1'000'000) {
  decompressor d{c, limit};
  std::string input;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    input += parts[i];
    for (result r = result::has_more; r == result::has_more;) {
      std::string_view left = input;
      r = d.step(left, i + 1 == parts.size());
      input.erase(0, input.size() - left.size());
      if (d.held() > limit + http_piece) return {0, "held too much"};
      if (r == result::failed) {
        CHECK(d.why().second.find('\n') == std::string::npos);
        return d.why();
      }
      if (r == result::ended) return {200, std::string{d.take_body().view()}};
    }
  }
  return {0, "neither whole nor refused"};
}
std::string compressed(coding c, std::string_view text) {
  std::string out;
  compressor{c}.append(text, true, out);
  return out;
}
/// Text of a few words, that compresses well, or any bytes.
std::string any_text(test::random_source& random) {
  std::string text(random.below(std::size_t{100'000}), 'x');
  const bool is_plain = random.one_in(2);
  for (char& c : text) c = static_cast<char>(is_plain ? 'a' + random.below(3) : random.below(256));
  return text;
}
std::vector<std::string> cut(const std::string& bytes, test::random_source& random) {
  std::vector<std::string> parts;
  const std::size_t longest = 1 + random.below(std::size_t{random.one_in(3) ? 8U : 20'000U});
  for (std::size_t at = 0; at < bytes.size();) {
    parts.push_back(bytes.substr(at, 1 + random.below(longest)));
    at += parts.back().size();
  }
  return parts;
}

TEST_CASE("gzip, deflate and deflate without a header are understood, whole or byte by byte") {
  for (const auto& [c, bytes] : {std::pair{coding::gzip, gzip_line},
                                 {coding::deflate, zlib_line},
                                 {coding::deflate, raw_line}}) {
    CHECK(decompressed(c, {bytes}) == std::pair{200, line});
    std::vector<std::string> single;
    for (const char byte : bytes) single.emplace_back(1, byte);
    CHECK(decompressed(c, single) == std::pair{200, line});
    single.emplace_back();  // The end may come by itself.
    CHECK(decompressed(c, single) == std::pair{200, line});
    for (std::size_t n = 1; n < bytes.size(); ++n) {
      CHECK(decompressed(c, {bytes.substr(0, n)}).first == 400);
    }
  }
  CHECK(decompressed(coding::gzip, {gzip_line + gzip_line}) == std::pair{200, line + line});
  CHECK(decompressed(coding::gzip, {""}) == std::pair{200, ""s});
}

TEST_CASE("what is wrong with a compressed body is said in one line") {
  const std::pair<coding, std::string> bad[] = {{coding::gzip, gzip_line + "x"},
                                                {coding::deflate, zlib_line + "x"},
                                                {coding::deflate, raw_line + raw_line},
                                                {coding::gzip, gzip_line.substr(0, 20)},
                                                {coding::gzip, gzip_line + gzip_line.substr(0, 1)},
                                                {coding::gzip, zlib_line},
                                                {coding::deflate, gzip_line},
                                                {coding::gzip, "plain text"}};
  const char* why[] = {"... follow ... gzip",    "... follow ... deflate", "... follow ... deflate",
                       "... gzip ... too early", "... gzip ... too early", "... not valid gzip",
                       "... not valid deflate",  "... not valid gzip"};
  for (std::size_t i = 0; i < std::size(bad); ++i) {
    const auto [status, what] = decompressed(bad[i].first, {bad[i].second});
    CHECK(status == 400);
    CHECK(test::gist{what} == why[i]);
  }
  // A wrong bit of the data or its sum.
  for (std::size_t at = 10; at < gzip_line.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string wrong = gzip_line;
      wrong[at] = static_cast<char>(static_cast<unsigned char>(wrong[at]) ^ (1U << bit));
      const auto [status, text] = decompressed(coding::gzip, {wrong});
      const bool has_padding = at == gzip_line.size() - 9;  // Of the last byte of data.
      CHECK((status == 400 || (has_padding && text == line)));
    }
  }
}

TEST_CASE("a body that is cut anywhere is decompressed to the same, and so are several in one") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const coding c = random.one_in(2) ? coding::gzip : coding::deflate;
    std::string text = any_text(random);
    std::string bytes;
    compressor packer{c};
    for (std::size_t at = 0; at < text.size();) {  // In pieces, as answers are.
      const std::size_t n = 1 + random.below(std::size_t{50'000});
      packer.append(std::string_view{text}.substr(at, n), false, bytes);
      at += n;
    }
    packer.append("", true, bytes);
    if (c == coding::gzip && random.one_in(2)) {
      bytes += compressed(c, text);
      text += text;
    }
    const bool is_same = decompressed(c, cut(bytes, random)) == std::pair{200, text};
    CHECK(is_same);
    if (text.empty()) continue;
    CHECK(decompressed(c, cut(bytes, random), text.size()).first == 200);
    CHECK(decompressed(c, cut(bytes, random), text.size() - 1).first == 413);
    CHECK(decompressed(c, {bytes.substr(0, bytes.size() - 1 - random.below(4U))}).first == 400);
    for (int i = 0; i < 5; ++i) {  // Whatever comes of it, it ends.
      std::string wrong = bytes;
      wrong[random.below(wrong.size())] = static_cast<char>(random.below(256));
      CHECK(decompressed(c, cut(wrong, random)).first > 0);
    }
  }
}

TEST_CASE("a bomb takes no more memory than the limit, and a step at a time") {
  const std::string all = compressed(coding::gzip, std::string(std::size_t{64} << 20U, '\0'));
  std::string_view bytes = all;
  CHECK(bytes.size() < std::size_t{400} << 10U);
  decompressor d{coding::gzip, std::size_t{1} << 20U};
  int steps = 1;
  while (d.step(bytes, true) == result::has_more) {
    ++steps;
    CHECK(d.held() <= (std::size_t{1} << 20U) + http_piece);
  }
  CHECK(d.why().first == 413);
  CHECK(test::gist{d.why().second} == "... decompressed body ... 1048576 bytes");
  CHECK(steps >= 16);
}

TEST_CASE("the coding of an answer is the one that a client likes best") {
  const std::pair<std::string_view, std::pair<coding, bool>> all[] = {
      {"", {coding::identity, false}},
      {"gzip", {coding::gzip, false}},
      {"GZIP", {coding::gzip, false}},
      {"x-gzip", {coding::gzip, false}},
      {"deflate", {coding::deflate, false}},
      {"deflate, gzip", {coding::gzip, false}},
      {"gzip;q=0.5, deflate;q=0.7", {coding::deflate, false}},
      {"gzip ; q=0.5 ,\tdeflate; Q=0.3", {coding::gzip, false}},
      {"br, zstd", {coding::identity, false}},
      {"br;q=1, *;q=0.1", {coding::gzip, false}},
      {"*", {coding::gzip, false}},
      {"gzip;q=0, *", {coding::deflate, false}},
      {"gzip;q=0", {coding::identity, false}},
      {"gzip;q=0.000, deflate;q=0", {coding::identity, false}},
      {"identity, gzip;q=0.5", {coding::identity, false}},
      {"identity;q=0.5, gzip;q=0.5", {coding::gzip, false}},
      {"identity;q=0, gzip", {coding::gzip, true}},
      {"*;q=0, deflate", {coding::deflate, true}},
      {"identity, *;q=0, gzip", {coding::gzip, false}},
      {"identity;q=0", {coding::identity, false}},  // Nothing is left that it takes: as it is.
      {"*;q=0", {coding::identity, false}},
      {"gzip;q=2", {coding::identity, false}},
      {"gzip;q=-1", {coding::identity, false}},
      {"gzip;q=nan", {coding::identity, false}},
      {"gzip;q=, deflate;q=0.1x, ,;,", {coding::identity, false}}};
  for (const auto& [accept, expected] : all) {
    CAPTURE(accept);
    const auto [c, is_required] = coding_preferred(accept);
    CHECK(std::pair{c, is_required} == expected);
  }
}

/// Answers the body that it was asked with, or as many letters as the path says.
class app final : public http_app {
 public:
  void asked(const http_request& q, const std::shared_ptr<http_client>& client) override {
    if (q.path == "/stream") {
      client->begin("text/event-stream");
      client->send(std::string(2000, 's'));
      return client->end();
    }
    if (q.path == "/held") return client->answer({.body = std::to_string(memory->held())});
    std::string body{q.body};
    if (q.method != "POST") body.assign(std::stoul(std::string{q.path.substr(1)}), 'x');
    client->answer({.body = std::move(body), .may_be_compressed = q.host != "plain"});
  }
  std::string error_body(int, std::string_view message) override { return std::string{message}; }
  void answered(int) override {}
  void draining() override {}
  const byte_ledger* memory = nullptr;
};

struct serving {
  explicit serving(const http_options& o) : server{o} {
    server.listen();
    thread = std::thread{[this] { server.run(answers); }};
  }
  ~serving() {
    server.drain(5);
    thread.join();
    CHECK(server.memory().held() == 0);
  }
  http_server server;
  app answers;
  std::thread thread;
};

TEST_CASE("compressed requests reach the app as they were, and behind them the next") {
  serving s{{.body_limit = 300'000}};
  test::connection c{s.server.port()};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::string text = any_text(random);
    const auto kind = random.one_in(2) ? coding::gzip : coding::deflate;
    const std::string bytes = compressed(kind, text);
    const std::string field = "Content-Encoding: " + std::string{name_of(kind)} + "\r\n";
    const bool is_same = c.ask("POST", "/", bytes, field) == std::pair{200, text};
    CHECK(is_same);
    c.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + field + "\r\n");
    char size[20];
    for (const std::string& part : cut(bytes, random)) {
      (void)std::snprintf(size, sizeof(size), "%zx\r\n", part.size());
      c.send(size + part + "\r\n");
    }
    c.send("0\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n");
    const bool is_same_in_chunks = c.answer() == std::pair{200, text};
    CHECK(is_same_in_chunks);
    CHECK(c.answer() == std::pair{200, "xxx"s});
  }
  CHECK(c.ask("POST", "/", gzip_line, "Expect: 100-continue\r\nContent-Encoding: gzip\r\n").first ==
        100);
  CHECK(c.answer() == std::pair{200, line});
  CHECK(c.ask("POST", "/", "a", "Content-Encoding: br\r\n").first == 415);
  CHECK(c.head.find("\r\nAccept-Encoding: gzip, deflate\r\n") != std::string::npos);
}

TEST_CASE("others are answered while a body is decompressed, and bombs end at their limits") {
  constexpr std::size_t mib = std::size_t{1} << 20U;
  http_server server{{.body_limit = 64 * mib, .max_held_bytes = 80 * mib}};
  server.listen();
  app answers;
  answers.memory = &server.memory();
  const std::string bytes = compressed(coding::gzip, std::string(64 * mib + 1, '\0'));
  const std::string begins =
      "POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: " +
      std::to_string(bytes.size()) + "\r\n\r\n";
  std::thread thread;
  {
    // Both have sent before the server runs: 16 KiB of a bomb, which are more than 2 MiB of text.
    const std::string first = bytes.substr(0, 16 * 1024);
    CHECK(decompressed(coding::gzip, {first}, 2 * mib).first == 413);
    test::connection bomb{server.port()};
    bomb.send(begins + first);
    test::connection other{server.port()};
    other.send("GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    thread = std::thread{[&] { server.run(answers); }};
    CHECK(std::stoul(other.answer().second) < 2 * mib);
    bomb.send(bytes.substr(first.size()));
    const auto [status, what] = bomb.answer();
    CHECK(status == 413);
    CHECK(test::gist{what} == "... decompressed body ... 67108864 bytes");
    // One that waits for its last byte leaves another too little.
    bomb.end_sending();
    const std::string half = compressed(coding::gzip, std::string(32 * mib, '\0'));
    test::connection waiting{server.port()};
    waiting.send(begins + half.substr(0, half.size() - 1));
    while (server.memory().held() < 32 * mib) std::this_thread::yield();
    test::connection late{server.port()};
    late.send(begins + bytes);
    CHECK(late.answer().first == 429);
  }
  server.drain(5);
  thread.join();
  CHECK(server.memory().held() == 0);
}

TEST_CASE("answers are compressed for clients that ask, from 1 KiB on, and streams are not") {
  serving s{{}};
  test::connection c{s.server.port()};
  const auto has = [&c](const std::string& field) {
    return c.head.find("\r\n" + field + "\r\n") != std::string::npos;
  };
  const std::string gzip = "Accept-Encoding: gzip\r\n";
  for (const std::size_t size :
       {std::size_t{1024}, http_piece, http_piece + 1, 3 * http_piece, std::size_t{5'000'000}}) {
    CAPTURE(size);
    const std::string text(size, 'x');
    const std::string path = "/" + std::to_string(size);
    for (const coding kind : {coding::gzip, coding::deflate}) {
      const std::string name{name_of(kind)};
      const auto [status, body] = c.ask("GET", path, "", "Accept-Encoding: " + name + "\r\n");
      CHECK(status == 200);
      CHECK(has("Content-Encoding: " + name));
      CHECK(has("Vary: Accept-Encoding"));
      CHECK(has("Transfer-Encoding: chunked") == (size > http_piece));
      CHECK(body.size() < size / 20);
      const bool is_same = decompressed(kind, {body}, size) == std::pair{200, text};
      CHECK(is_same);
    }
    const bool is_plain = c.ask("GET", path) == std::pair{200, text};
    CHECK(is_plain);
    CHECK(has("Vary: Accept-Encoding"));
  }
  test::connection d{s.server.port()};
  CHECK(d.ask("GET", "/1023", "", gzip).second == std::string(1023, 'x'));
  CHECK(d.head.find("Encoding") == std::string::npos);
  const std::string required = "Accept-Encoding: gzip, identity;q=0\r\n";
  CHECK(decompressed(coding::gzip, {d.ask("GET", "/3", "", required).second}) ==
        std::pair{200, "xxx"s});
  CHECK(d.ask("GET", "/0", "", required) == std::pair{200, ""s});
  CHECK(d.head.find("Encoding") == std::string::npos);
  CHECK(d.ask("GET", "/stream", "", gzip) == std::pair{200, std::string(2000, 's')});
  CHECK(d.head.find("Content-Encoding") == std::string::npos);
  test::random_source random{1};
  std::string noise(2000, 'x');  // Compressed it would be longer.
  for (char& byte : noise) byte = static_cast<char>(random.below(256));
  CHECK(d.ask("POST", "/", noise, gzip) == std::pair{200, noise});
  CHECK(d.head.find("Content-Encoding") == std::string::npos);
  d.host = "plain";  // The app does not want it.
  CHECK(d.ask("GET", "/2000", "", required) == std::pair{200, std::string(2000, 'x')});
  CHECK(d.head.find("Encoding") == std::string::npos);
}

TEST_CASE("a HEAD gets the fields of the compressed answer and no body") {
  serving s{{}};
  const auto head = [](const std::string& path) {
    return "HEAD " + path +
           " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n";
  };
  test::connection whole{s.server.port()};
  whole.send(head("/1024"));
  CHECK(whole.answer() == std::pair{0, ""s});  // Closed where the body would be.
  CHECK(whole.head.find("\r\nContent-Encoding: gzip\r\n") != std::string::npos);
  CHECK(whole.head.find("\r\nContent-Length: 1024\r\n") == std::string::npos);
  test::connection in_pieces{s.server.port()};
  in_pieces.send(head("/100000"));
  CHECK(in_pieces.answer() == std::pair{200, "(cut)"s});
  CHECK(in_pieces.head.find("\r\nContent-Encoding: gzip\r\n") != std::string::npos);
}

}  // namespace
}  // namespace cohort::serve::compression_test
