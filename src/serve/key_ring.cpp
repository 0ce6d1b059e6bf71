// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/key_ring.hpp>

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <runtime/regular_file.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::serve {
namespace {

constexpr std::size_t longest_key = 512;
constexpr std::size_t largest_file = std::size_t{1} << 20U;

/// @param where Where it was found; the key itself is a secret.
void check_key(std::string_view key, const std::string& where) {
  const bool is_visible = std::ranges::all_of(key, [](char c) { return c > ' ' && c <= '~'; });
  if (is_visible && !key.empty() && key.size() <= longest_key) return;
  throw config_error{fmt::format("{}: got {}, expected a key of 1 to {} visible ASCII characters",
                                 where,
                                 key.empty()   ? "an empty key"
                                 : !is_visible ? "other characters"
                                               : fmt::format("{} characters", key.size()),
                                 longest_key)};
}

std::string_view trim(std::string_view line) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  return line;
}

/// Compares in constant time. @param b Not empty.
bool is_same(std::string_view a, std::string_view b) {
  const auto at = [](std::string_view s, std::size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(s[i % s.size()]));
  };
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= at(a, i) ^ at(b, i);
  return difference == 0;
}

}  // namespace

key_ring::key_ring(std::vector<std::string> given, std::string option, std::string file)
    : given_{std::move(given)}, option_{std::move(option)}, file_{std::move(file)} {
  for (const std::string& key : given_) check_key(key, "--api-key");
  keys_ = read();
}

std::vector<std::string> key_ring::read() const {
  std::vector<std::string> all = given_;
  if (!file_.empty()) {
    runtime::detail::regular_file file{file_};
    const auto text = file.read_all<std::string>(largest_file);
    if (!file.problem().empty()) {
      throw config_error{fmt::format("{}: {} {}", option_, file_, file.problem())};
    }
    std::string_view rest{text};
    for (std::size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      const std::string_view key = trim(line);
      if (key.empty() || key.front() == '#') continue;
      check_key(key, fmt::format("{}: {}:{}", option_, file_, number));
      all.emplace_back(key);
    }
    if (all.size() == given_.size()) {
      throw config_error{fmt::format("{}: {} has no key, expected one a line", option_, file_)};
    }
  }
  if (all.size() > max_keys) {
    throw config_error{fmt::format("{}: got {} keys, expected at most {}",
                                   file_.empty() ? "--api-key" : option_, all.size(), max_keys)};
  }
  check_apart(all);
  return all;
}

void key_ring::keep_apart(key_ring& a, key_ring& b) {
  a.other_ = &b;
  b.other_ = &a;
  b.check_apart(b.keys_);
}

void key_ring::check_apart(const std::vector<std::string>& mine) const {
  if (other_ == nullptr) return;
  bool is_shared = false;
  {
    const std::lock_guard lock{other_->mutex_};
    for (const std::string& theirs : other_->keys_) {
      for (const std::string& key : mine) is_shared |= is_same(theirs, key);
    }
  }
  if (!is_shared) return;
  throw config_error{fmt::format("{}: {} has a key that is one of {}, too; expected others",
                                 option_, file_,
                                 other_->has_file() ? other_->option_ : "--api-key")};
}

bool key_ring::admits(std::string_view authorization) const {
  constexpr std::string_view scheme = "bearer ";  // In any case, by RFC 9110.
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  if (!std::ranges::equal(authorization.substr(0, scheme.size()), scheme, {}, lower)) return false;
  authorization.remove_prefix(scheme.size());
  authorization.remove_prefix(std::min(authorization.size(), authorization.find_first_not_of(' ')));
  bool is_found = false;
  const std::lock_guard lock{mutex_};
  for (const std::string& key : keys_) is_found |= is_same(authorization, key);
  return is_found;
}

std::string key_ring::reload() {
  std::vector<std::string> all = read();
  std::string what = fmt::format("{}: {} keys read", option_, all.size() - given_.size());
  const std::lock_guard lock{mutex_};
  keys_.swap(all);
  return what;
}

}  // namespace cohort::serve
