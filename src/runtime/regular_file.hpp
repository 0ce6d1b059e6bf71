// SPDX-License-Identifier: Apache-2.0
/// @file
/// Regular files, opened without waiting and looked at after they are open: `regular_file`.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

namespace cohort::runtime::detail {

/// An open descriptor. Below 0: none.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_{fd} {}
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  descriptor(descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  /// A name of the opened file, whatever has become of the name that it was opened by.
  [[nodiscard]] std::string link() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_ = -1;
};

[[nodiscard]] inline std::string last_error() { return std::generic_category().message(errno); }

/// A regular file that is open for reading, or why it is not. To open it never waits, and never has
/// an effect on what is no regular file, such as a pipe. All checks look at the opened file, so
/// that no change of names in between can lead past them. Thread safety: none.
class regular_file {
 public:
  /// @param path Links are followed.
  explicit regular_file(const std::string& path) { open(AT_FDCWD, path, nullptr); }
  /// A file below a folder. Links are followed, but not out of it; a hard link is refused to a file
  /// that has another owner than the folder or lies on another device.
  regular_file(const descriptor& folder, const std::string& path) {
    open(folder.get(), path, &folder);
  }

  /// Why it is not open, or a read of it failed; empty: it is, and did not.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] const descriptor& file() const noexcept { return file_; }
  /// When it was opened.
  [[nodiscard]] const struct stat& status() const noexcept { return status_; }
  [[nodiscard]] std::uintmax_t size() const noexcept {
    return static_cast<std::uintmax_t>(status_.st_size);
  }

  /// The next bytes of it. @returns How many: 0 at its end, and if it failed.
  [[nodiscard]] std::size_t read(void* to, std::size_t bytes) {
    while (problem_.empty()) {
      const ssize_t n = ::read(file_.get(), to, bytes);
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) problem_ = "cannot be read: " + last_error();
    }
    return 0;
  }
  /// All of it, up to `most` bytes. More is a problem, and so is a failed read.
  template <class Bytes>
  [[nodiscard]] Bytes read_all(std::size_t most) {
    Bytes out;
    if (size() > most) problem_ = too_large(size(), most);
    if (!problem_.empty()) return out;
    out.resize(static_cast<std::size_t>(size()) + 1);  // One more, to see the end.
    std::size_t have = 0;
    while (const std::size_t n = read(out.data() + have, out.size() - have)) {
      have += n;
      if (have > most) {
        problem_ = too_large(have, most);
        break;
      }
      if (have == out.size()) out.resize(std::min(2 * have, most + 1));
    }
    out.resize(have);
    return out;
  }

 private:
  static std::string too_large(std::uintmax_t bytes, std::size_t most) {
    return "has " + std::to_string(bytes) + " bytes: expected at most " + std::to_string(most);
  }

  void open(int at, const std::string& path, const descriptor* folder) {
    // O_PATH has no effect on what it opens.
    const descriptor found{::openat(at, path.c_str(), O_PATH | O_CLOEXEC)};
    if (!found.is_open() || ::fstat(found.get(), &status_) != 0) {
      problem_ = "cannot be read: " + last_error();
    } else if (!S_ISREG(status_.st_mode)) {
      problem_ = "is refused: it is not a regular file";
    } else if (folder != nullptr) {
      problem_ = leaves(*folder, found);
    }
    if (!problem_.empty()) return;
    file_ = descriptor{::open(found.link().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (!file_.is_open()) problem_ = "cannot be read: " + last_error();
  }
  /// Why the file is not below the folder; empty: it is.
  [[nodiscard]] std::string leaves(const descriptor& folder, const descriptor& found) const {
    namespace fs = std::filesystem;
    std::error_code failed;
    const fs::path top = fs::read_symlink(folder.link(), failed);
    const fs::path at = failed ? fs::path{} : fs::read_symlink(found.link(), failed);
    if (failed) return "is refused: /proc does not say where it lies";
    if (std::ranges::mismatch(top, at).in1 != top.end()) {
      return "is refused: it is a link out of the model's folder";
    }
    struct stat owner{};
    if (::fstat(folder.get(), &owner) != 0) return "cannot be read: " + last_error();
    const bool is_of_others = status_.st_uid != owner.st_uid || status_.st_dev != owner.st_dev;
    if (status_.st_nlink > 1 && is_of_others) {
      return "is refused: it is a hard link to a file that has another owner than the model's "
             "folder or lies on another device";
    }
    return {};
  }

  descriptor file_;
  struct stat status_{};
  std::string problem_;
};

}  // namespace cohort::runtime::detail
