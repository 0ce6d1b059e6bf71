// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder where servers keep what they have measured and learned, for their next start.
#pragma once

#include <cohort/deferred/twin/settings.hpp>

#include <formats/warm_start_file.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace cohort::inference {

/// $XDG_CACHE_HOME/cohort, else ~/.cache/cohort; empty if the environment says neither.
[[nodiscard]] std::string default_cache_folder();

/// The fields of a key by which a value is judged once it is found, not found: a folder has one
/// file for each model and its options, which a new build of the program or another machine
/// replaces.
inline constexpr const char* key_machine = "machine";
inline constexpr const char* key_program = "program";

/// One folder. A value is a file, written beside and renamed: servers that start at one time do not
/// see halves, and the last one's file stays. What cannot be read, is of another version or was
/// found for something else is told in one line and is as if it were not there. A folder that
/// cannot be written is told once. Neither throws. Thread safety: one thread keeps, any find.
class start_cache {
 public:
  /// @param folder Made when something is first kept; empty: nothing is kept or found.
  /// @param warn Called with one line of text.
  start_cache(std::string folder, std::function<void(const std::string&)> warn);

  [[nodiscard]] bool is_on() const noexcept { return !folder_.empty(); }
  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }

  /// Where a value lies. @param kind "profile", "stages" or "settings"; @param name For people, may
  /// be empty.
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
  /// The value of a file, if it is there, can be read and is of `key`.
  template <class Parse>
  auto find(const std::string& file, const formats::start_key& key, Parse parse)
      -> std::optional<decltype(parse(file, file))>;
  void write(const std::string& file, const std::string& text);

  std::string folder_;
  std::function<void(const std::string&)> warn_;
  bool is_writable_ = true;
};

}  // namespace cohort::inference
