// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server as a stranger's client sees it: a child process, spoken to over sockets.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::test {

enum class await_ready : bool { no, yes };

/// A line of a server's log without its time and severity; another line as it is.
inline std::string without_stamp(const std::string& line) {
  static const std::regex stamp{R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning|error) )"};
  return std::regex_replace(line, stamp, "");
}

/// The server as a child, from its ready line to its exit.
class child_server {
 public:
  child_server(const char* program, std::vector<std::string> options,
               await_ready awaits = await_ready::yes) {
    int out[2];
    REQUIRE(pipe(out) == 0);
    if (std::ranges::find(options, "--port") == options.end()) {
      options.insert(options.end(), {"--port", "0"});
    }
    if (std::ranges::find(options, "--lame-duck-ms") == options.end()) {
      options.insert(options.end(), {"--lame-duck-ms", "0"});  // Nobody sends it anything.
    }
    options.insert(options.begin(), program);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      dup2(out[1], STDERR_FILENO);
      close(out[0]);
      close(out[1]);
      // What servers of this user have kept for their next start is no part of a test.
      unsetenv("XDG_CACHE_HOME");
      unsetenv("HOME");
      std::vector<char*> argv;
      for (std::string& o : options) argv.push_back(o.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    output_ = fdopen(out[0], "r");
    if (awaits == await_ready::no) return;
    char line[4096];
    while (port_ == 0 && std::fgets(line, sizeof(line), output_) != nullptr) {
      told_before += first_line;
      first_line = without_stamp(line);
      const std::size_t at = first_line.find("http://127.0.0.1:");
      if (at != std::string::npos) port_ = static_cast<std::uint16_t>(std::atoi(line + at + 17));
    }
  }
  ~child_server() {
    if (pid_ > 0) stop();
    std::fclose(output_);
  }
  child_server(const child_server&) = delete;
  child_server& operator=(const child_server&) = delete;

  /// The next line that it writes, after the ready line and without its stamp; empty at its end.
  /// That on its access is passed over, and kept in `access`.
  [[nodiscard]] std::string read_line() {
    char bytes[4096];
    while (std::fgets(bytes, sizeof(bytes), output_) != nullptr) {
      std::string line = without_stamp(bytes);
      if (line.find("_server: keys: ") == line.npos) return line;
      access = std::move(line);
    }
    return "";
  }
  /// @returns The exit status after SIGTERM.
  int stop(int signal = SIGTERM) {
    kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void signal(int which) const { kill(pid_, which); }
  /// The last part of what it writes, from here to its end.
  [[nodiscard]] std::string read_rest() {
    std::string rest;
    for (std::string line = read_line(); !line.empty(); line = read_line()) rest += line;
    return rest;
  }
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  std::string first_line;   ///< The ready line, or the last one of a server that did not start.
  std::string told_before;  ///< Whole lines.
  std::string access;       ///< Who may do what, as it says behind the ready line.

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
  FILE* output_ = nullptr;
};

/// That of the ready line.
inline std::uint16_t management_port_of(const child_server& server) {
  const std::size_t at = server.first_line.find(" management http://127.0.0.1:");
  REQUIRE_MESSAGE(at != std::string::npos, server.first_line);
  return static_cast<std::uint16_t>(std::stoi(server.first_line.substr(at + 29)));
}

/// A port that nobody listens on at present.
inline std::uint16_t unused_port() {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
  socklen_t size = sizeof(at);
  REQUIRE(bind(s, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(getsockname(s, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  close(s);
  return ntohs(at.sin_port);
}

/// Whether somebody listens on a port.
inline bool is_listened_on(std::uint16_t port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const bool yes = connect(s, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  close(s);
  return yes;
}

/// One connection to it, on loopback.
class connection {
 public:
  /// @param receive_buffer In bytes; 0: the system's choice.
  /// @param from The address that it comes from, of 127.0.0.0/8.
  explicit connection(std::uint16_t port, int receive_buffer = 0, const char* from = "127.0.0.1")
      : socket_{socket(AF_INET, SOCK_STREAM, 0)} {
    if (receive_buffer > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in at{};
    at.sin_family = AF_INET;
    inet_pton(AF_INET, from, &at.sin_addr);
    REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  }
  ~connection() { close(socket_); }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  /// @returns Whether the system took all. Not if the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// One answer: status, and body by its Content-Length. Status 0 if the server closed.
  std::pair<int, std::string> answer() {
    while (buffer_.find("\r\n\r\n") == std::string::npos) {
      if (!more()) return {0, ""};
    }
    const std::size_t head_end = buffer_.find("\r\n\r\n") + 4;
    head = buffer_.substr(0, head_end);
    const int status = std::atoi(buffer_.c_str() + 9);
    std::size_t length = 0;
    if (const std::size_t at = head.find("Content-Length: "); at != std::string::npos) {
      length = static_cast<std::size_t>(std::atoll(head.c_str() + at + 16));
    }
    if (head.find("Transfer-Encoding: chunked") != std::string::npos) {
      buffer_.erase(0, head_end);
      return {status, chunks()};
    }
    while (buffer_.size() < head_end + length) {
      if (!more()) return {0, ""};
    }
    std::string body = buffer_.substr(head_end, length);
    buffer_.erase(0, head_end + length);
    return {status, body};
  }
  std::pair<int, std::string> ask(const std::string& method, const std::string& path,
                                  const std::string& body = "", const std::string& fields = "") {
    send(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return answer();
  }
  /// Closing then breaks the connection off instead of ending it.
  void reset_on_close() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  /// Nothing more will be sent; answers are still read.
  void end_sending() { shutdown(socket_, SHUT_WR); }
  /// Waits for some bytes that are not looked at. @returns Whether any came.
  bool wait_for_bytes() { return more(); }
  /// Of the answer that has begun to come; 0 if none has.
  [[nodiscard]] int status() const {
    return buffer_.size() < 12 ? 0 : std::atoi(buffer_.c_str() + 9);
  }
  bool is_closed_by_server() { return buffer_.empty() && !more(); }
  std::string head;
  std::string host = "localhost";  ///< That it asks for.

 private:
  /// The body of a streamed answer; what there is of it, and "(cut)", if the server closes.
  std::string chunks() {
    std::string body;
    for (;;) {
      std::size_t line = 0;
      while ((line = buffer_.find("\r\n")) == std::string::npos) {
        if (!more()) return body + "(cut)";
      }
      const auto length = static_cast<std::size_t>(std::strtoull(buffer_.c_str(), nullptr, 16));
      while (buffer_.size() < line + 2 + length + 2) {
        if (!more()) return body + "(cut)";
      }
      body += buffer_.substr(line + 2, length);
      buffer_.erase(0, line + 2 + length + 2);
      if (length == 0) return body;
    }
  }
  bool more() {
    char bytes[65536];
    const ssize_t n = recv(socket_, bytes, sizeof(bytes), 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }
  int socket_;
  std::string buffer_;
};

}  // namespace cohort::test
