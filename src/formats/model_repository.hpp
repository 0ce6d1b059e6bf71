// SPDX-License-Identifier: Apache-2.0
/// @file
/// Looking at a repository of models: NAME/config.pbtxt, which may be missing, and
/// NAME/VERSION/model.onnx.
#pragma once

#include "model_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::formats {

/// A version that is to be served.
struct model_version {
  std::uint64_t number = 1;  ///< At least 1.
  std::string file{};        ///< The model's, below the repository's folder: NAME/1/model.onnx.
                             ///< Beside it there may be others that it needs.
  std::uint64_t bytes = 0;   ///< Of all files in its folder: about what it takes once loaded.
  std::string stamp{};       ///< Differs once a file in its folder was changed or replaced.
  std::string problem{};     ///< Why it cannot be loaded, one line; empty: it may be tried.
};

/// A folder of a repository.
struct repository_model {
  std::string name{};
  std::string dir{};                      ///< The repository's folder.
  std::string config_file{};              ///< Where its config is, or would be, below `dir`.
  std::optional<model_config> config{};   ///< None: the model's own metadata say all.
  std::vector<model_version> versions{};  ///< Those that the config's policy chooses, ascending.
  std::string stamp{};                    ///< Of the config, as a version's.
  std::vector<std::string> notes{};       ///< One line each: what was passed over, and why.
  std::string problem{};  ///< Why no version can be loaded; empty: at least one may be tried.

  /// About what its versions take, in bytes: memory_mb of the config for each, or their files.
  [[nodiscard]] std::uint64_t memory() const noexcept;
};

/// Looks at one model, by the name that a client may give. What is wrong is in the answer: nothing
/// else is disturbed. Reads its config and looks at its files without opening them. What it says
/// names files below `dir`, never `dir`.
/// Nothing outside `dir` is looked at, whatever the name and the symbolic links in it are: each is
/// followed below `dir` alone, and refused if it is absolute. `dir` itself may be a link.
/// @param config Stands for its config, as JSON; empty: that is read.
[[nodiscard]] repository_model scan_model(const std::string& dir, const std::string& name,
                                          const std::string& config = {});

/// Looks at all models, in order of their names. Hidden entries and plain files are passed over.
/// @throws input_error If the folder cannot be read or has more than 1000 models.
[[nodiscard]] std::vector<repository_model> scan_repository(const std::string& dir);

/// The lines of a file in a model's folder, of at most 16 MiB; what ends them is left out.
/// @throws input_error If it cannot be read, or has bytes that are no UTF-8.
[[nodiscard]] std::vector<std::string> read_labels(const repository_model& of,
                                                   const std::string& file);

/// A model's configuration, if its file lies in a repository as NAME/VERSION/FILE, or the folder of
/// its stages in the stead of FILE, and there is one.
/// @throws input_error As `parse_model_config`.
[[nodiscard]] std::optional<model_config> config_beside(const std::string& model_file);

/// The largest length of a model's requests: max_length of the configuration beside it, or the
/// default.
/// @throws input_error As `config_beside`.
[[nodiscard]] std::uint32_t max_length_of(const std::string& model_file);

}  // namespace cohort::formats
