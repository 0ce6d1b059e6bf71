// SPDX-License-Identifier: Apache-2.0
/// @file
/// The changes in a folder of models between two looks at it: `changes_between`.
#pragma once

#include <fmt/format.h>
#include <formats/model_repository.hpp>

#include <map>
#include <string>
#include <vector>

namespace cohort::inference {

/// The state of a folder: for each model a text, never empty, that changes when the model's
/// configuration, the versions that it selects, or their files change.
using repository_stamps = std::map<std::string, std::string>;

[[nodiscard]] inline std::string stamp_of(const formats::repository_model& m) {
  std::string all = "config " + m.stamp;
  for (const formats::model_version& v : m.versions) {
    all += fmt::format("\n{} {}", v.number, v.stamp);
  }
  return all;
}

/// The models to load and unload so that a server follows its folder. Both lists are sorted.
struct repository_changes {
  std::vector<std::string> to_load;  ///< New and changed models.
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
