// SPDX-License-Identifier: Apache-2.0
// examples/adopt/asio_server.cpp as a client sees it.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace cohort {
namespace {
namespace asio = boost::asio;
using asio::ip::tcp;

/// The server as a child, on a port of the system's choice.
class server {
 public:
  explicit server(const char* rounds) {
    std::array<int, 2> out{};
    REQUIRE(pipe(out.data()) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      execl(ASIO_SERVER, ASIO_SERVER, "0", rounds, nullptr);
      _exit(127);
    }
    close(out[1]);
    output_ = fdopen(out[0], "r");
    std::array<char, 256> line{};
    REQUIRE(std::fgets(line.data(), line.size(), output_) != nullptr);
    const std::string ready{line.data()};
    const std::string before = "serving on port ";
    REQUIRE(ready.starts_with(before));
    port_ = static_cast<std::uint16_t>(std::atoi(ready.c_str() + before.size()));
  }
  ~server() {
    if (pid_ > 0) (void)stop();
    std::fclose(output_);
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// How requests ended, as it says at its end; "exit" is its status.
  std::map<std::string, int> stop() {
    kill(pid_, SIGTERM);
    std::map<std::string, int> ends;
    std::array<char, 256> line{};
    while (std::fgets(line.data(), line.size(), output_) != nullptr) {
      std::istringstream words{line.data()};
      int count = 0;
      std::string how;
      words >> count >> how;
      ends[how] = count;
    }
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    ends["exit"] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ends;
  }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  FILE* output_ = nullptr;
};

class client {
 public:
  explicit client(const server& s) {
    socket_.connect({asio::ip::address_v4::loopback(), s.port()});
  }
  void send(const std::string& text) { asio::write(socket_, asio::buffer(text)); }
  /// The next line; empty once the server has closed.
  std::string line() {
    boost::system::error_code e;
    const std::size_t n = asio::read_until(socket_, asio::dynamic_buffer(text_), '\n', e);
    if (e) return {};
    std::string out = text_.substr(0, n - 1);
    text_.erase(0, n);
    return out;
  }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
  std::string text_;
};

TEST_CASE("every request of many clients at once is answered by its name, with its roots") {
  server s{"1000"};
  client a{s};
  client b{s};
  constexpr int each = 300;
  for (int i = 0; i < each; ++i) {
    const std::string n = std::to_string(i);
    const std::string square = std::to_string(i * i);
    a.send("a" + n + " 60000 " + square + " 0 1 4\n");
    b.send("b" + n + " 60000 9 " + square + " 16 25\n");
  }
  for (auto [c, letter] : {std::pair{&a, 'a'}, std::pair{&b, 'b'}}) {
    std::set<std::string> names;
    for (int i = 0; i < each; ++i) {
      std::istringstream words{c->line()};
      std::string name;
      std::string how;
      std::array<double, 4> y{};
      words >> name >> how >> y[0] >> y[1] >> y[2] >> y[3];
      CAPTURE(name);
      REQUIRE(how == "completed");
      REQUIRE(name[0] == letter);
      const double root = std::atoi(name.c_str() + 1);
      const std::array<double, 4> expected = letter == 'a' ? std::array<double, 4>{root, 0, 1, 2}
                                                           : std::array<double, 4>{3, root, 4, 5};
      for (std::size_t k = 0; k < y.size(); ++k) REQUIRE(y[k] == doctest::Approx(expected[k]));
      names.insert(name);
    }
    CHECK(names.size() == each);
  }
  CHECK(s.stop() == std::map<std::string, int>{{"completed", 2 * each}, {"exit", 0}});
}
TEST_CASE("who asks for what cannot be is told so, and goes on") {
  server s{"100000"};
  client c{s};
  // A row takes tens of microseconds or more: a nanosecond is too little, and known to be.
  c.send("x 0.000001 1 2 3 4\n");
  CHECK(c.line() == "x refused deadline_infeasible");
  const std::string expected = " error expected NAME DEADLINE_MS X X X X, a deadline up to 1000000";
  for (const std::string rest : {" 1000 1 2 3", " 1000 1 2 3 4 5", " -1 1 2 3 4", " 0 1 2 3 4",
                                 " 1e9 1 2 3 4", " 1000 1 2 three 4", " nan 1 2 3 4", ""}) {
    CAPTURE(rest);
    c.send("y" + rest + "\n");
    CHECK(c.line() == "y" + expected);
  }
  c.send("\n");
  CHECK(c.line() == "?" + expected);
  c.send("z 60000 4 9 16 25\n");
  CHECK(c.line() == "z completed 2 3 4 5");

  client endless{s};
  endless.send(std::string(2000, '1'));
  CHECK(endless.line().empty());
  c.send("z 60000 0 0 0 1\n");
  CHECK(c.line() == "z completed 0 0 0 1");
  CHECK(s.stop() == std::map<std::string, int>{{"completed", 2}, {"refused", 1}, {"exit", 0}});
}
TEST_CASE("a client that goes takes what it still waits for along, and no more") {
  server s{"100000"};
  constexpr int many = 1000;
  std::string requests;
  for (int i = 0; i < many; ++i) requests += "r 600000 1 2 3 4\n";
  client stays{s};
  {
    client goes{s};
    goes.send(requests);
    CHECK(goes.line().starts_with("r completed 1 "));
    stays.send("s 600000 4 4 4 4\n");
  }
  CHECK(stays.line() == "s completed 2 2 2 2");
  std::map<std::string, int> ends = s.stop();
  CHECK(ends["exit"] == 0);
  CHECK(ends["cancelled"] > 0);
  CHECK(ends["cancelled"] + ends["completed"] <= many + 1);
  CHECK(ends["failed"] + ends["late"] + ends["refused"] == 0);
}
TEST_CASE("a server that is told to end cancels what waits, and exits in order") {
  server s{"100000"};
  client c{s};
  std::string requests;
  for (int i = 0; i < 500; ++i) requests += "r 600000 1 2 3 4\n";
  c.send(requests);
  CHECK(c.line().starts_with("r completed 1 "));
  std::map<std::string, int> ends = s.stop();
  CHECK(ends["exit"] == 0);
  CHECK(ends["completed"] > 0);
  CHECK(ends["completed"] + ends["cancelled"] <= 500);
}
}  // namespace
}  // namespace cohort
