// SPDX-License-Identifier: Apache-2.0
/// @file
/// Scans a repository of models: NAME/config.pbtxt, which may be missing, and
/// NAME/VERSION/model.onnx.
#pragma once

#include "model_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::formats {

/// A version to serve.
struct model_version {
  std::uint64_t number = 1;  ///< At least 1.
  std::string file{};        ///< The model's, below the repository's folder: NAME/1/model.onnx.
                             ///< It may need other files beside it.
  std::uint64_t bytes = 0;   ///< Size of all files in its folder: an estimate of its memory.
  std::string stamp{};       ///< Changes when a file in its folder does.
  std::string problem{};     ///< Why it cannot be loaded, one line; empty: it may be tried.
};

/// A model's folder in a repository.
struct repository_model {
  std::string name{};
  std::string dir{};                      ///< The repository's folder.
  std::string config_file{};              ///< Path of its config, existing or not, below `dir`.
  std::optional<model_config> config{};   ///< None: the model's own metadata suffice.
  std::vector<model_version> versions{};  ///< Selected by the config's policy, ascending.
  std::string stamp{};                    ///< Of the config, as for a version.
  std::vector<std::string> notes{};       ///< One line each: something skipped, and why.
  std::string problem{};  ///< Why no version can be loaded; empty: at least one can be tried.

  /// Estimated memory of its versions, in bytes: memory_mb of the config for each, or their files.
  [[nodiscard]] std::uint64_t memory() const noexcept;
};

/// Scans one model, by a name that may come from a client. The result describes errors, which
/// affect no other model. Reads its config and examines its files without opening them. Messages
/// name files below `dir`, never `dir`. Nothing outside `dir` is accessed, whatever the name and
/// the symbolic links in it: links are followed only within `dir`, and absolute ones refused. `dir`
/// itself may be a link.
/// @param config Replaces its config, as JSON; empty: the file is read.
[[nodiscard]] repository_model scan_model(const std::string& dir, const std::string& name,
                                          const std::string& config = {});

/// Scans all models, in order of their names. Hidden entries and plain files are skipped.
/// @throws input_error If the folder cannot be read or has more than 1000 models.
[[nodiscard]] std::vector<repository_model> scan_repository(const std::string& dir);

/// Reads the lines of a file in a model's folder, of at most 16 MiB, without line ends.
/// @throws input_error If it cannot be read, or is not UTF-8.
[[nodiscard]] std::vector<std::string> read_labels(const repository_model& of,
                                                   const std::string& file);

/// The configuration of a model, if its file lies in a repository as NAME/VERSION/FILE (or the
/// folder of its stages in place of FILE) and has one.
/// @throws input_error As `parse_model_config`.
[[nodiscard]] std::optional<model_config> config_beside(const std::string& model_file);

/// Maximum length of a model's requests: max_length of the configuration beside it, or the default.
/// @throws input_error As `config_beside`.
[[nodiscard]] std::uint32_t max_length_of(const std::string& model_file);

}  // namespace cohort::formats
