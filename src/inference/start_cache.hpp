// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder of measurements and learned settings that servers keep for their next start.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <formats/warm_start_file.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cohort::inference {

/// $XDG_CACHE_HOME/cohort, else ~/.cache/cohort; empty if neither variable is set.
[[nodiscard]] std::string default_cache_folder();

/// Key fields that are not part of a file's name, but checked after it is read. There is one file
/// for each model and its options, which a new build or another machine overwrites.
inline constexpr const char* key_machine = "machine";
inline constexpr const char* key_program = "program";

/// One folder of values, each in a file that is written under another name and renamed: servers
/// that start together never see partial files, and the last one wins. A value that cannot be read,
/// has another version or another key is reported in one line and ignored. A folder that cannot be
/// written is reported once. Neither throws. Thread safety: one thread writes, any reads.
class start_cache {
 public:
  /// @param folder Created when a value is first kept; empty: the cache is off.
  /// @param warn Called with one line of text.
  start_cache(std::string folder, std::function<void(const std::string&)> warn);

  [[nodiscard]] bool is_on() const noexcept { return !folder_.empty(); }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

  /// The file of a value. @param kind "profile", "stages" or "settings". @param name For people;
  /// may be empty.
  [[nodiscard]] std::string file_of(const std::string& kind, const std::string& name,
                                    const formats::start_key& key) const;

  [[nodiscard]] std::optional<std::vector<formats::kept_point>> find_profile(
      const std::string& model, const formats::start_key& key);
  void keep_profile(const std::string& model, const formats::kept_profile& p);
  [[nodiscard]] std::optional<formats::kept_stages> find_stages(const std::string& model,
                                                                const formats::start_key& key);
  void keep_stages(const std::string& model, const formats::kept_stages& s);
  [[nodiscard]] std::optional<deferred::settings> find_settings(const formats::start_key& key);
  void keep_settings(const formats::kept_settings& s);

  void warn(const std::string& line) const { warn_(line); }

 private:
  /// Reads the value of a file, if it exists, is valid and belongs to `key`.
  template <class Parse>
  auto find(const std::string& file, const formats::start_key& key, Parse parse)
      -> std::optional<decltype(parse(file, file))>;
  void write(const std::string& file, const std::string& text);

  std::string folder_;
  std::function<void(const std::string&)> warn_;
  bool is_writable_ = true;
};

}  // namespace cohort::inference
