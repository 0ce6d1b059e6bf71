// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/http.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <support/child_server.hpp>

namespace cohort::serve::http_hostile_test {
namespace {

/// Answers what it was asked, and counts what only the bodies and headers of others ask for.
class app final : public http_app {
 public:
  void asked(const http_request& q, const std::shared_ptr<http_client>& client) override {
    if (q.path == "/smuggled" || q.authorization == "smuggled") ++smuggled;
    client->answer({.status = 202, .body = std::string{q.body}});
  }
  std::string error_body(int, std::string_view message) override { return std::string{message}; }
  void answered(int) override {}
  void draining() override {}
  std::atomic<int> smuggled = 0;
};

enum class then : std::uint8_t {
  closed,  // The server closes behind its answers.
  kept,    // The next request of the connection is answered.
  ends,    // The client ends its side at once; the server closes.
  resets,  // The client breaks the connection off.

};

struct shape {
  std::string_view name;
  std::string bytes;
  std::vector<int> answers;
  then after = then::closed;
};

const std::string next = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
const std::string good = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

std::string get(const std::string& fields) {
  return "GET /a HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n" + next;
}
std::string post(const std::string& fields, const std::string& body) {
  return "POST /a HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n" + body;
}
std::string chunked(const std::string& body) {
  return post("Transfer-Encoding: chunked\r\n", body + next);
}
std::string many(std::size_t n, const std::string& text) {
  std::string all;
  for (std::size_t i = 0; i < n; ++i) all += text;
  return all;
}

std::vector<shape> shapes() {
  using namespace std::string_literals;
  const std::string long_text(20'000, 'x');
  const std::string five = "12345";
  // 2,000 times "a", by Python's gzip.
  const std::string bomb =
      "\x1f\x8b\x08\0\0\0\0\0\x02\x03\x4b\x4c\x1c\x05\xa3\x60\x14\x8c\x82\x51\x30\x0a\x46\xc1"
      "\x50\x07\0\x39\x3e\x13\xa8\xd0\x07\0\0"s;
  return {
      // Request lines.
      {"garbage", "\x01\x02 nonsense\r\n\r\n" + next, {400}},
      {"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"s + next, {400}},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}},
      {"HTTP/0.9", "GET /a\r\n" + next, {400}},
      {"version 1.2", "GET /a HTTP/1.2\r\nHost: x\r\n\r\n" + next, {400}},
      {"version 11", "GET /a HTTP/11\r\nHost: x\r\n\r\n" + next, {400}},
      {"no version number", "GET /a HTTP/\r\nHost: x\r\n\r\n" + next, {400}},
      {"lower case protocol", "GET /a http/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"two spaces", "GET  /a HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"tabs", "GET\t/a\tHTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"space in target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"space before method", " GET /a HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"no target", "GET HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"method not a token", "G(T /a HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"NUL in method", "G\0T /a HTTP/1.1\r\nHost: x\r\n\r\n"s + next, {400}},
      {"NUL in target", "GET /a\0b HTTP/1.1\r\nHost: x\r\n\r\n"s + next, {400}},
      {"control in target", "GET /a\x01 HTTP/1.1\r\nHost: x\r\n\r\n" + next, {400}},
      {"long target", "GET /" + long_text + " HTTP/1.1\r\nHost: x\r\n\r\n" + next, {431}},
      {"long method", long_text + " /a HTTP/1.1\r\nHost: x\r\n\r\n" + next, {431}},
      {"bare LF line", "GET /a HTTP/1.1\nHost: x\n\n" + next, {400}},
      {"bare CR line", "GET /a HTTP/1.1\rHost: x\r\r" + next, {400}},
      {"junk behind version", "GET /a HTTP/1.1 x\r\nHost: x\r\n\r\n" + next, {400}},
      {"bytes above 127", "GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", {202}, then::kept},
      {"CONNECT", "CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", {202}, then::kept},
      {"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {202}, then::kept},
      // Fields.
      {"no Host", "GET /a HTTP/1.1\r\n\r\n" + next, {400}},
      {"two Hosts", get("Host: y\r\n"), {400}},
      {"no colon", get("Field\r\n"), {400}},
      {"space before colon", get("Transfer-Encoding : chunked\r\n"), {400}},
      {"empty name", get(": x\r\n"), {400}},
      {"NUL in name", get("Fi\0eld: x\r\n"s), {400}},
      {"NUL in value", get("Field: a\0b\r\n"s), {400}},
      {"control in value", get("Field: a\x02\x03\r\n"), {400}},
      {"bare LF in fields", get("Field: a\nAuthorization: smuggled\r\n"), {400}},
      {"bare CR in value", get("Field: a\rAuthorization: smuggled\r\n"), {400}},
      {"folded first line", "GET /a HTTP/1.1\r\n Host: x\r\n\r\n" + next, {400}},
      {"folded value",
       "GET /a HTTP/1.1\r\nHost: x\r\nF: a\r\n Authorization: smuggled\r\n\r\n",
       {202},
       then::kept},
      {"one long field", get("Field: " + long_text + "\r\n"), {431}},
      {"many fields", get(many(5000, "F: x\r\n")), {431}},
      {"endless header", "GET /a HTTP/1.1\r\n" + many(100'000, "F: x\r\n"), {431}},
      {"bad Connection", get("Connection: ,\x7f\r\n"), {400}},
      // Lengths.
      {"negative length", post("Content-Length: -1\r\n", next), {400}},
      {"signed length", post("Content-Length: +5\r\n", five + next), {400}},
      {"hexadecimal length", post("Content-Length: 0x5\r\n", five + next), {400}},
      {"length with a space", post("Content-Length: 5 5\r\n", five + next), {400}},
      {"empty length", post("Content-Length: \r\n", next), {400}},
      {"length not a number", post("Content-Length: five\r\n", five + next), {400}},
      {"length beyond 64 bits",
       post("Content-Length: 18446744073709551621\r\n", five + next),
       {400}},
      {"huge length", post("Content-Length: 9223372036854775807\r\n", five + next), {413}},
      {"two lengths", post("Content-Length: 5\r\nContent-Length: 0\r\n", five + next), {400}},
      {"two lengths in one", post("Content-Length: 5, 0\r\n", five + next), {400}},
      {"length and chunks",
       post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n" + next),
       {400}},
      {"chunks and length",
       post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n" + next),
       {400}},
      {"the body looks like a request",
       post("Content-Length: " + std::to_string(next.size()) + "\r\n", next),
       {202},
       then::kept},
      // Codings.
      {"unknown transfer coding", post("Transfer-Encoding: gzip\r\n", next), {501}},
      {"coding behind chunked",
       post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n" + next),
       {501}},
      {"coding before chunked",
       post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n" + next),
       {501}},
      {"chunked twice", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n" + next), {501}},
      {"two codings",
       post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n" + next),
       {400}},
      {"hidden coding",
       post("Transfer-Encoding: \x0b"
            "chunked\r\n",
            "0\r\n\r\n" + next),
       {400}},
      {"folded coding", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), {202}, then::kept},
      {"chunks in 1.0",
       "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next,
       {400}},
      // Chunks.
      {"no size", chunked("\r\n"), {400}},
      {"size not a number", chunked("x\r\nabc\r\n"), {400}},
      {"negative size", chunked("-1\r\n"), {400}},
      {"prefixed size", chunked("0x3\r\nabc\r\n"), {400}},
      {"size beyond 64 bits", chunked("10000000000000003\r\nabc\r\n0\r\n\r\n"), {400}},
      {"huge size", chunked("7fffffffffffffff\r\nabc\r\n"), {413}},
      {"largest size", chunked("ffffffffffffffff\r\nabc\r\n"), {413}},
      {"chunk too short", chunked("5\r\nabc\r\n0\r\n\r\n"), {400}},
      {"chunk too long", chunked("2\r\nabc\r\n0\r\n\r\n"), {400}},
      {"bare LF size", chunked("3\nabc\n0\n\n"), {400}},
      {"bare LF size, no CRLF behind it",
       post("Transfer-Encoding: chunked\r\n", "3\nabc\n0\n\n"),
       {400}},
      {"bare LF behind a chunk", post("Transfer-Encoding: chunked\r\n", "3\r\nabc\n"), {400}},
      {"bare LF in the trailer", post("Transfer-Encoding: chunked\r\n", "0\r\nF: x\n\n"), {400}},
      {"space before size", chunked(" 3\r\nabc\r\n0\r\n\r\n"), {400}},
      {"bad extension", chunked("3;=\r\nabc\r\n0\r\n\r\n"), {400}},
      {"endless size", chunked(many(100'000, "0")), {400}},
      {"endless extension", chunked("3;a=" + many(10, long_text)), {400}},
      {"endless trailer", chunked("0\r\n" + many(20'000, "F: x\r\n")), {400}},
      {"many small chunks over the limit", chunked(many(2000, "1\r\nx\r\n")), {413}},
      {"length in the trailer", chunked("0\r\nContent-Length: 5\r\n\r\n"), {400}},
      {"key in the trailer",
       post("Transfer-Encoding: chunked\r\n", "0\r\nAuthorization: smuggled\r\n\r\n"),
       {202},
       then::kept},
      // What is asked for beside.
      {"unknown Expect", post("Expect: tea\r\nContent-Length: 5\r\n", five + next), {417}},
      {"Expect in 1.0",
       "POST /a HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n" + five,
       {202}},
      {"Expect of a body too long",
       post("Expect: 100-continue\r\nContent-Length: 5000\r\n", ""),
       {413}},
      {"not gzip", post("Content-Encoding: gzip\r\nContent-Length: 5\r\n", five + next), {400}},
      {"not deflate",
       post("Content-Encoding: deflate\r\nContent-Length: 5\r\n", five + next),
       {400}},
      {"gzip that is cut",
       post("Content-Encoding: gzip\r\nContent-Length: 12\r\n", bomb.substr(0, 12) + next),
       {400}},
      {"gzip over the limit",
       post("Content-Encoding: gzip\r\nContent-Length: 35\r\n", bomb + next),
       {413}},
      {"gzip in chunks over the limit",
       post("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
            "23\r\n" + bomb + "\r\n0\r\n\r\n" + next),
       {413}},
      {"gzip of no body", post("Content-Encoding: gzip\r\n", ""), {202}, then::kept},
      {"unknown coding of the body",
       post("Content-Encoding: br\r\nContent-Length: 5\r\n", five + next),
       {415}},
      {"two codings of the body",
       post("Content-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n",
            five + next),
       {415}},
      {"bad Accept-Encoding",
       "GET /a HTTP/1.1\r\nHost: x\r\nAccept-Encoding: ;q=,,gzip;q=nan;q=;=;,\"\r\n\r\n",
       {202},
       then::kept},
      {"h2c",
       "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
       {202},
       then::kept},
      {"websocket",
       "GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
       {202},
       then::kept},
      // One behind another.
      {"garbage behind a request", good + "\x7f\x7f\r\n\r\n" + next, {202, 400}},
      {"line ends behind a request", good + "\r\n\r\n" + next, {202, 400}},
      {"body of no length behind a request", good + "{\"a\":1}" + next, {202, 400}},
      {"a request behind the last",
       "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + next,
       {202}},
      {"a hundred at a time", many(100, good), std::vector<int>(100, 202), then::kept},
      // Those that stop.
      {"nothing", "", {}},
      {"a byte", "G", {408}},
      {"half a line", "GET /a HT", {408}},
      {"half a header", "GET /a HTTP/1.1\r\nHost:", {408}},
      {"header without an end", "GET /a HTTP/1.1\r\nHost: x\r\n", {408}},
      {"half a body", post("Content-Length: 5\r\n", "123"), {408}},
      {"half a chunk", post("Transfer-Encoding: chunked\r\n", "5\r\nab"), {408}},
      {"chunks without an end", post("Transfer-Encoding: chunked\r\n", "2\r\nab\r\n"), {408}},
      {"Expect without a body",
       post("Expect: 100-continue\r\nContent-Length: 5\r\n", ""),
       {100, 408}},
      {"ends at once", "", {}, then::ends},
      {"ends in a line", "GET /a HT", {}, then::ends},
      {"ends in a body", post("Content-Length: 5\r\n", "123"), {}, then::ends},
      {"resets at once", "", {}, then::resets},
      {"resets in a line", "GET /a HT", {}, then::resets},
      {"resets in a body", post("Content-Length: 5\r\n", "123"), {}, then::resets},
      {"resets behind a request", good, {}, then::resets},
  };
}

TEST_CASE("hostile bytes get one line or a close, ask for nothing, and disturb nobody") {
  http_server server{
      {.body_limit = 1000, .timeouts = {.header_s = 1, .idle_s = 3600, .read_s = 1}}};
  server.listen();
  app answers;
  std::thread thread{[&] { server.run(answers); }};
  std::atomic<bool> is_over = false;
  std::atomic<int> lost = 0;
  std::vector<std::thread> honest;
  for (int i = 0; i < 2; ++i) {
    honest.emplace_back([&] {
      test::connection c{server.port()};
      while (!is_over) {
        if (c.ask("POST", "/b", "body") != std::pair{202, std::string{"body"}}) ++lost;
      }
    });
  }
  const std::vector<shape> all = shapes();
  CHECK(all.size() >= 60);
  std::vector<std::unique_ptr<test::connection>> open;
  for (const shape& s : all) {  // Together, as some wait for a time-out.
    test::connection& c = *open.emplace_back(std::make_unique<test::connection>(server.port()));
    c.send(s.bytes);
    if (s.after == then::ends) c.end_sending();
    if (s.after != then::resets) continue;
    c.reset_on_close();
    open.back().reset();
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const shape& s = all[i];
    CAPTURE(s.name);
    if (s.after == then::resets) continue;
    test::connection& c = *open[i];
    for (const int expected : s.answers) {
      const auto [status, body] = c.answer();
      CHECK(status == expected);
      if (status < 400) continue;
      CHECK_FALSE(body.empty());
      CHECK(body.find_first_of("\r\n") == std::string::npos);
    }
    if (s.after == then::kept) {
      CHECK(c.ask("GET", "/a").first == 202);
    } else {
      CHECK(c.is_closed_by_server());
    }
  }
  is_over = true;
  for (std::thread& t : honest) t.join();
  CHECK(lost == 0);
  CHECK(answers.smuggled == 0);
  open.clear();
  server.drain(5);
  thread.join();
  CHECK(server.under_way() == 0);
}

}  // namespace
}  // namespace cohort::serve::http_hostile_test
