// SPDX-License-Identifier: Apache-2.0
#include "start_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <models/identity.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <formats/text.hpp>
#include <system_error>
#include <utility>

namespace cohort::inference {

std::string default_cache_folder() {
  // The XDG Base Directory specification says to ignore a relative path.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string{cache} + "/cohort";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string{home} + "/.cache/cohort";
  return {};
}

start_cache::start_cache(std::string folder, std::function<void(const std::string&)> warn)
    : folder_{std::move(folder)}, warn_{std::move(warn)} {}

std::string start_cache::file_of(const std::string& kind, const std::string& name,
                                 const formats::start_key& key) const {
  models::fingerprint f;
  for (const auto& [field, value] : key) {
    if (field != key_machine && field != key_program) f.add(field).add("=").add(value).add("\n");
  }
  return fmt::format("{}/{}{}{}-{}.json", folder_, kind, name.empty() ? "" : "-", name, f.text());
}

template <class Parse>
auto start_cache::find(const std::string& file, const formats::start_key& key, Parse parse)
    -> std::optional<decltype(parse(file, file))> {
  std::error_code ignored;
  // Test for existence first: a missing value is normal and deserves no warning.
  if (!is_on() || !std::filesystem::exists(file, ignored)) return std::nullopt;
  try {
    auto kept = parse(file, formats::read_file(file));
    const std::string why = formats::difference(file, kept.key, key);
    if (why.empty()) return kept;
    warn_(fmt::format("cache: {}; ignored", why));
  } catch (const formats::input_error& e) {
    warn_(fmt::format("cache: {}; ignored", e.what()));
  }
  return std::nullopt;
}

void start_cache::write(const std::string& file, const std::string& text) {
  if (!is_on() || !is_writable_) return;
  static std::atomic<int> written{0};
  // The name is unique, so that two servers do not write the same file.
  const std::string beside = fmt::format("{}.{}.{}", file, getpid(), ++written);
  std::error_code failed;
  try {
    std::filesystem::create_directories(folder_, failed);
    if (failed) throw formats::input_error{fmt::format("{}: {}", folder_, failed.message())};
    formats::write_file(beside, text);
    // Not synchronised to disk: a file that a power failure truncates is ignored later.
    std::filesystem::rename(beside, file);
  } catch (const std::exception& e) {
    std::filesystem::remove(beside, failed);
    is_writable_ = false;
    warn_(fmt::format("cache: {}; nothing is kept for the next start", e.what()));
  }
}

std::optional<std::vector<formats::kept_point>> start_cache::find_profile(
    const std::string& model, const formats::start_key& key) {
  auto kept = find(file_of("profile", model, key), key, formats::parse_kept_profile);
  if (!kept) return std::nullopt;
  return std::move(kept->points);
}

void start_cache::keep_profile(const std::string& model, const formats::kept_profile& p) {
  write(file_of("profile", model, p.key), formats::write_kept(p));
}

std::optional<formats::kept_stages> start_cache::find_stages(const std::string& model,
                                                             const formats::start_key& key) {
  return find(file_of("stages", model, key), key, formats::parse_kept_stages);
}

void start_cache::keep_stages(const std::string& model, const formats::kept_stages& s) {
  write(file_of("stages", model, s.key), formats::write_kept(s));
}

std::optional<deferred::settings> start_cache::find_settings(const formats::start_key& key) {
  const auto kept = find(file_of("settings", "", key), key, formats::parse_kept_settings);
  if (!kept) return std::nullopt;
  return kept->settings;
}

void start_cache::keep_settings(const formats::kept_settings& s) {
  write(file_of("settings", "", s.key), formats::write_kept(s));
}

}  // namespace cohort::inference
