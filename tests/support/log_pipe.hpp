// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server whose standard error is a pipe that nothing reads.
#pragma once

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <support/child_server.hpp>
#include <support/scratch_file.hpp>

namespace cohort::test {

/// Both ends of the pipe, until `close_reader`.
class log_pipe {
 public:
  log_pipe() {
    REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
    ends_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(ends_ >= 0);
    REQUIRE(fcntl(ends_, F_SETPIPE_SZ, 4096) >= 0);
  }
  ~log_pipe() {
    close_reader();
    std::remove(path_.c_str());
  }
  log_pipe(const log_pipe&) = delete;
  log_pipe& operator=(const log_pipe&) = delete;

  [[nodiscard]] child_server run(const char* program, const std::vector<std::string>& more) const {
    std::vector<std::string> options{"-c", "exec \"$0\" \"$@\" 2>" + path_, program};
    options.insert(options.end(), more.begin(), more.end());
    return child_server{"/bin/sh", options};
  }
  /// From now on a write to it fails.
  void close_reader() {
    if (ends_ >= 0) close(std::exchange(ends_, -1));
  }
  /// From now on a write to it blocks.
  void fill() const {
    while (write(ends_, "x", 1) == 1) {
    }
  }
  /// What has been written and not read.
  [[nodiscard]] std::string read_all() const {
    std::string all;
    char bytes[4096];
    for (ssize_t n = 0; (n = read(ends_, bytes, sizeof(bytes))) > 0;) {
      all.append(bytes, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  std::string path_ = scratch("log");
  int ends_ = -1;
};

}  // namespace cohort::test
