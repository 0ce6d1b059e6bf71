// SPDX-License-Identifier: Apache-2.0
/// @file
/// Regular files, opened without waiting and checked after opening: `regular_file`; and files
/// opened below a folder regardless of concurrent renames: `open_below`.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

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
  /// A path to the opened file, even if it was renamed.
  [[nodiscard]] std::string link() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_ = -1;
};

[[nodiscard]] inline std::string last_error() { return std::generic_category().message(errno); }

/// Opens a folder, for opening files below it. Links are followed: the operator chose the path.
[[nodiscard]] inline descriptor open_folder(const std::string& path) {
  return descriptor{::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
}

/// Opens a path below a folder with O_PATH, which has no effect on it. Each component is opened
/// within the folder opened before it, and symbolic links are read and followed in the same way, so
/// that concurrent renames cannot lead out of the folder. (openat2 with RESOLVE_BENEATH does the
/// same if the kernel has it and no filter forbids it.)
/// @returns None if it fails. errno: EXDEV if the path or a link is absolute or leads above the
/// folder; ELOOP beyond 40 links; ENAMETOOLONG beyond 64 folders.
[[nodiscard]] inline descriptor open_below(const descriptor& folder, const std::string& path) {
  constexpr int most_links = 40;
  constexpr std::size_t most_folders = 64;
  const auto failed = [](int why) {
    errno = why;
    return descriptor{};
  };
  const auto open = [](const descriptor& in, const std::string& name) {
    return descriptor{::openat(in.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
  };
  std::vector<descriptor> way;  // From below the folder to the last one opened.
  std::string rest = path;
  int links = 0;
  while (!rest.empty()) {
    if (rest.front() == '/') return failed(EXDEV);
    const std::string part = rest.substr(0, rest.find('/'));
    rest.erase(0, std::min(rest.find_first_not_of('/', part.size()), rest.size()));
    if (part == ".") continue;
    if (part == "..") {
      if (way.empty()) return failed(EXDEV);
      way.pop_back();
      continue;
    }
    if (way.size() == most_folders) return failed(ENAMETOOLONG);
    descriptor next = open(way.empty() ? folder : way.back(), part);
    struct stat is{};
    if (!next.is_open() || ::fstat(next.get(), &is) != 0) return {};
    if (!S_ISLNK(is.st_mode)) {
      way.push_back(std::move(next));
      continue;
    }
    if (++links > most_links) return failed(ELOOP);
    std::string to(PATH_MAX, '\0');
    const ssize_t bytes = ::readlinkat(next.get(), "", to.data(), to.size());
    if (bytes < 0) return {};
    to.resize(static_cast<std::size_t>(bytes));
    rest = rest.empty() ? std::move(to) : to.append(1, '/').append(rest);
  }
  if (way.empty()) return open(folder, ".");
  return std::move(way.back());
}

/// Whether a file has a hard link that is not among the first 10,000 entries below the folder.
[[nodiscard]] inline bool has_names_outside(const descriptor& folder, const struct stat& file) {
  constexpr int most_entries = 10'000;
  namespace fs = std::filesystem;
  nlink_t left = file.st_nlink;
  if (left < 2) return false;
  std::error_code failed;
  fs::recursive_directory_iterator it{folder.link() + "/", failed};
  for (int i = 0; i < most_entries && !failed && it != fs::end(it); ++i, it.increment(failed)) {
    struct stat s{};
    if (::lstat(it->path().c_str(), &s) != 0) continue;
    if (s.st_ino == file.st_ino && s.st_dev == file.st_dev && --left == 0) return false;
  }
  return true;
}

/// A regular file open for reading, or the reason why it is not. Opening never waits, and never
/// affects other kinds of files, such as pipes. All checks use the opened file, so that concurrent
/// renames cannot bypass them. Thread safety: none.
class regular_file {
 public:
  /// @param path Links are followed.
  explicit regular_file(const std::string& path) {
    open(descriptor{::open(path.c_str(), O_PATH | O_CLOEXEC)}, nullptr);
  }
  /// Opens a file below a folder, as `open_below`. @param names_in Folder that must contain all
  /// hard links to the file: a link from elsewhere may refer to a file not meant to be read here.
  regular_file(const descriptor& folder, const std::string& path, const descriptor& names_in) {
    open(open_below(folder, path), &names_in);
  }

  /// Why it is not open, or why a read failed; empty if neither.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] const descriptor& file() const noexcept { return file_; }
  /// Its status when opened.
  [[nodiscard]] const struct stat& status() const noexcept { return status_; }
  [[nodiscard]] std::uintmax_t size() const noexcept {
    return static_cast<std::uintmax_t>(status_.st_size);
  }

  /// Reads the next bytes. @returns Their number: 0 at the end, or on failure.
  [[nodiscard]] std::size_t read(void* to, std::size_t bytes) {
    while (problem_.empty()) {
      const ssize_t n = ::read(file_.get(), to, bytes);
      if (n >= 0) return static_cast<std::size_t>(n);
      if (errno != EINTR) problem_ = "cannot be read: " + last_error();
    }
    return 0;
  }
  /// Reads bytes from `at` on, independently of earlier reads. @returns As `read`.
  [[nodiscard]] std::size_t read_at(std::uint64_t at, void* to, std::size_t bytes) {
    if (!problem_.empty()) return 0;
    if (::lseek(file_.get(), static_cast<off_t>(at), SEEK_SET) >= 0) return read(to, bytes);
    problem_ = "cannot be read: " + last_error();
    return 0;
  }
  /// Makes a size above `most` bytes a problem.
  void limit(std::size_t most) {
    if (problem_.empty() && size() > most) problem_ = too_large(size(), most);
  }
  /// Whether it was changed or replaced since it was opened, or that is unknown.
  [[nodiscard]] bool has_changed() const noexcept {
    struct stat now{};
    return ::fstat(file_.get(), &now) != 0 || now.st_size != status_.st_size ||
           now.st_ctim.tv_sec != status_.st_ctim.tv_sec ||
           now.st_ctim.tv_nsec != status_.st_ctim.tv_nsec;
  }
  /// Reads the whole file, up to `most` bytes. A larger file is a problem, and so is a failed read.
  template <class Bytes>
  [[nodiscard]] Bytes read_all(std::size_t most) {
    Bytes out;
    limit(most);
    if (!problem_.empty()) return out;
    out.resize(static_cast<std::size_t>(size()) + 1);  // One more, to detect the end.
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

  void open(const descriptor& found, const descriptor* names_in) {
    if (!found.is_open() || ::fstat(found.get(), &status_) != 0) {
      problem_ = errno == EXDEV
                     ? "is refused: it is a link that is absolute or leads out of the folder"
                     : "cannot be read: " + last_error();
    } else if (!S_ISREG(status_.st_mode)) {
      problem_ = "is refused: it is not a regular file";
    } else if (names_in != nullptr && has_names_outside(*names_in, status_)) {
      problem_ = "is refused: it has hard links outside the model's folder: copy it instead";
    }
    if (!problem_.empty()) return;
    file_ = descriptor{::open(found.link().c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (!file_.is_open()) problem_ = "cannot be read: " + last_error();
  }

  descriptor file_;
  struct stat status_{};
  std::string problem_;
};

}  // namespace cohort::runtime::detail
