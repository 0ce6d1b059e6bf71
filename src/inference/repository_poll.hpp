// SPDX-License-Identifier: Apache-2.0
/// @file
/// What has changed in a folder of models between two looks at it: `changes_between`.
#pragma once

#include <fmt/format.h>
#include <formats/model_repository.hpp>

#include <map>
#include <string>
#include <vector>

namespace cohort::inference {

/// A look at a folder: by model a text, never empty, that is another one once the model's config,
/// the versions that it chooses or a file of them was changed.
using repository_stamps = std::map<std::string, std::string>;

[[nodiscard]] inline std::string stamp_of(const formats::repository_model& m) {
  std::string all = "config " + m.stamp;
  for (const formats::model_version& v : m.versions) {
    all += fmt::format("\n{} {}", v.number, v.stamp);
  }
  return all;
}

/// What a server does that follows its folder. Both by name.
struct repository_changes {
  std::vector<std::string> to_load;  ///< New models, and changed ones.
  std::vector<std::string> to_unload;
};

/// Complexity: O(models).
[[nodiscard]] inline repository_changes changes_between(const repository_stamps& before,
                                                        const repository_stamps& now) {
  repository_changes found;
  for (const auto& [name, stamp] : now) {
    const auto was = before.find(name);
    if (was == before.end() || was->second != stamp) found.to_load.push_back(name);
  }
  for (const auto& [name, stamp] : before) {
    if (!now.contains(name)) found.to_unload.push_back(name);
  }
  return found;
}

}  // namespace cohort::inference
