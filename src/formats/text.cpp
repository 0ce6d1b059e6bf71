// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <runtime/regular_file.hpp>

#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

namespace cohort::formats {

std::string number_range::describe() const {
  const std::string from =
      above_low ? fmt::format("above {}", low) : fmt::format("of at least {}", low);
  if (high == std::numeric_limits<double>::max()) return fmt::format("a number {}", from);
  if (above_low) return fmt::format("a number {} and at most {}", from, high);
  return fmt::format("a number from {} to {}", low, high);
}

std::string integer_range::describe() const {
  if (high == std::numeric_limits<std::uint64_t>::max()) {
    return fmt::format("an integer of at least {}", low);
  }
  return fmt::format("an integer from {} to {}", low, high);
}

void fail(std::string_view where, std::string_view value, std::string_view expected) {
  throw input_error{fmt::format("{}: got {}, expected {}", where, value, expected)};
}

std::optional<double> to_number(std::string_view text) noexcept {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(x)) {
    return std::nullopt;
  }
  return x;
}

std::optional<std::uint64_t> to_integer(std::string_view text) noexcept {
  std::uint64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return x;
}

double parse_number(std::string_view where, std::string_view text, const number_range& range) {
  const std::optional<double> x = to_number(text);
  if (!x || !range.contains(*x)) {
    fail(where, x ? std::string{text} : quote_short(text), range.describe());
  }
  return *x;
}

std::uint64_t parse_integer(std::string_view where, std::string_view text,
                            const integer_range& range) {
  const std::optional<std::uint64_t> x = to_integer(text);
  if (!x || *x < range.low || *x > range.high) {
    fail(where, to_number(text) ? std::string{text} : quote_short(text), range.describe());
  }
  return *x;
}

std::size_t utf8_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  if (first < 0xC2U || first > 0xF4U) return 0;
  const std::size_t length = first < 0xE0U ? 2 : first < 0xF0U ? 3 : 4;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  // Overlong forms, surrogates, and beyond U+10FFFF.
  const unsigned second = byte(1);
  if ((first == 0xE0U && second < 0xA0U) || (first == 0xEDU && second > 0x9FU) ||
      (first == 0xF0U && second < 0x90U) || (first == 0xF4U && second > 0x8FU)) {
    return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
      continue;
    }
    const char c = text.front();
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  out += '"';
  return out;
}

std::string quote_short(std::string_view text) {
  constexpr std::size_t most = 60;
  if (text.size() <= most) return quote(text);
  std::size_t end = most;
  // Not within a character.
  while (end > most - 4 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return quote(text.substr(0, end)) + "...";
}

namespace {
constexpr std::size_t most_bytes = std::size_t{256} << 20U;  // Limit of a file.

struct closer {
  void operator()(std::FILE* f) const noexcept {
    if (f != stdin) std::fclose(f);
  }
};
}  // namespace

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string read_regular_file(const std::string& path) {
  runtime::detail::regular_file file{path};
  auto text = file.read_all<std::string>(most_bytes);
  if (!file.problem().empty()) throw input_error{fmt::format("{}: {}", path, file.problem())};
  return text;
}

std::string read_file(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = input_name(path);
  const auto give_up = [&](const char* why) {
    throw input_error{fmt::format("{}: cannot be read: {}", name, why)};
  };
  errno = 0;
  const std::unique_ptr<std::FILE, closer> file{standard ? stdin : std::fopen(path.c_str(), "rb")};
  if (!file) give_up(std::strerror(errno));
  std::string text;
  char chunk[1U << 16U];
  for (std::size_t n; (n = std::fread(chunk, 1, sizeof chunk, file.get())) > 0;) {
    text.append(chunk, n);
    if (text.size() > most_bytes) give_up("it is larger than 256 MiB");
  }
  if (std::ferror(file.get()) != 0) give_up(std::strerror(errno));
  return text;
}

void check_writable(const std::string& path) {
  std::error_code ignored;
  const auto give_up = [&](int why) {
    throw input_error{fmt::format("{}: cannot be written: {}", path, std::strerror(why))};
  };
  if (std::filesystem::is_directory(path, ignored)) give_up(EISDIR);
  const std::filesystem::path folder = std::filesystem::path{path}.parent_path();
  if (access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) give_up(errno);
}

void write_file(const std::string& path, std::string_view text) {
  // Writes a temporary file and renames it, so that a failure keeps the old content; not for
  // devices and pipes, which must not be replaced.
  std::error_code ignored;
  const auto type = std::filesystem::status(path, ignored).type();
  const bool whole =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  const std::string target = whole ? path + ".part" : path;
  errno = 0;
  std::FILE* file = std::fopen(target.c_str(), "wb");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (written && whole) written = std::rename(target.c_str(), path.c_str()) == 0;
  if (!written) {
    const int why = errno;
    if (whole && file != nullptr) std::filesystem::remove(target, ignored);
    throw input_error{fmt::format("{}: cannot be written: {}", path, std::strerror(why))};
  }
}

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw input_error{fmt::format("standard output: cannot be written: {}", std::strerror(errno))};
  }
}

}  // namespace cohort::formats
