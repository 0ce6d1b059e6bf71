// SPDX-License-Identifier: Apache-2.0
// The servers of examples/embed as clients see them, on an idle and on a busy machine.
#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace cohort {
namespace {

/// The server as a child, on a port of the system's choice.
class server {
 public:
  explicit server(const char* program) {
    std::array<int, 2> out{};
    REQUIRE(pipe(out.data()) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      execl(program, program, "0", nullptr);
      _exit(127);
    }
    close(out[1]);
    FILE* const said = fdopen(out[0], "r");
    REQUIRE(std::fscanf(said, "serving on port %hu", &port) == 1);
    std::fclose(said);
  }
  ~server() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  std::uint16_t port = 0;
  [[nodiscard]] bool is_alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }

 private:
  pid_t pid_ = -1;
};

class client {
 public:
  explicit client(const server& s) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(s.port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0);
  }
  ~client() { close(fd_); }
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  void send(std::string_view text) const {
    REQUIRE(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  /// The next line; empty once the server has closed.
  std::string line() {
    for (;;) {
      if (const std::size_t end = text_.find('\n'); end != std::string::npos) {
        std::string out = text_.substr(0, end);
        text_.erase(0, end + 1);
        return out;
      }
      char bytes[4096];
      const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
      if (n <= 0) return {};
      text_.append(bytes, static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_ = socket(AF_INET, SOCK_STREAM, 0);
  std::string text_;
};

enum class answer : std::uint8_t { right, said_why, wrong };
answer judge(const std::string& line, float x) {
  const char* const rest = line.c_str() + std::min(line.find(' '), line.size());
  if (line.empty() || std::abs(std::strtof(line.c_str(), nullptr) - x) > 1e-3F)
    return answer::wrong;
  char* end = nullptr;
  const float root = std::strtof(rest, &end);
  if (end == rest) return std::string_view{rest}.size() > 3 ? answer::said_why : answer::wrong;
  return std::abs(root * root - x) < 0.01F ? answer::right : answer::wrong;
}

/// Threads that leave little of the processors to others.
struct busy_machine {
  explicit busy_machine(unsigned many) {
    for (unsigned i = 0; i < many; ++i) {
      threads.emplace_back([this] {
        while (!is_over) {
        }
      });
    }
  }
  ~busy_machine() {
    is_over = true;
    for (std::thread& t : threads) t.join();
  }
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
};

/// What eight clients get that ask one thing after another.
std::map<answer, int> ask(const server& s, std::string_view within_ms) {
  std::map<answer, int> all;
  std::array<std::map<answer, int>, 8> got;
  std::vector<std::thread> clients;
  for (std::size_t c = 0; c < got.size(); ++c) {
    clients.emplace_back([&, c] {
      client own{s};
      for (std::size_t i = 0; i < 50; ++i) {
        const auto x = static_cast<float>(100 * c + i);
        own.send(std::string{within_ms} + ' ' + std::to_string(x) + '\n');
        ++got[c][judge(own.line(), x)];
      }
    });
  }
  for (std::thread& t : clients) t.join();
  for (const auto& g : got) {
    for (const auto& [what, count] : g) all[what] += count;
  }
  return all;
}

TEST_CASE("servers of one's own answer each request once") {
  for (const char* program : {LOOP_EPOLL, LOOP_ASIO}) {
    CAPTURE(program);
    const server s{program};
    CHECK(ask(s, "60000") == std::map<answer, int>{{answer::right, 400}});
    {
      const busy_machine m{4 * std::max(1U, std::thread::hardware_concurrency())};
      CHECK(ask(s, "60000") == std::map<answer, int>{{answer::right, 400}});
      std::map<answer, int> in_a_hurry = ask(s, "10");
      CHECK(in_a_hurry[answer::wrong] == 0);
      CHECK(in_a_hurry[answer::right] + in_a_hurry[answer::said_why] == 400);
    }
    std::map<answer, int> impossible = ask(s, "0.001");
    CHECK(impossible == std::map<answer, int>{{answer::said_why, 400}});
  }
}
TEST_CASE("clients that go away take nobody along") {
  for (const char* program : {LOOP_EPOLL, LOOP_ASIO}) {
    CAPTURE(program);
    const server s{program};
    for (int i = 0; i < 20; ++i) {
      const client goes{s};
      goes.send("60000 4\n60000 9\n60000 1");
    }
    CHECK(ask(s, "60000") == std::map<answer, int>{{answer::right, 400}});
    CHECK(s.is_alive());
  }
}

}  // namespace
}  // namespace cohort
