// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the other files that an ONNX model names for its weights, before anything opens them, and
/// makes copies of them that only this process can change.
#pragma once

#include <runtime/regular_file.hpp>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace cohort::runtime::onnx::detail {

/// The locations of external data in a model's bytes, in order, each once. Reads only the structure
/// of the message, however large its weights are: O(messages), recursing at most 100 deep. Keeps 64
/// KiB of a file in memory at a time.
/// @throws config_error If the bytes are no whole message of an ONNX model; does not name the file.
[[nodiscard]] std::vector<std::string> external_locations(std::span<const std::byte> model);
[[nodiscard]] std::vector<std::string> external_locations(runtime::detail::regular_file& model);

/// @throws config_error If a location is not below the folder of its model: it is empty, absolute
/// or has "..".
void check_location(const std::string& location);

/// A model's file and its folders, opened once.
struct model_place {
  runtime::detail::descriptor folder;    ///< The file's folder, with its external data.
  runtime::detail::descriptor names_in;  ///< The folder that must contain all hard links to them.
  runtime::detail::regular_file file;

  /// @param below Empty: `file` is opened directly. Else the folder of a repository, below which
  /// `file`, NAME/VERSION/FILE, is opened; all hard links must be in NAME.
  /// @throws config_error If a folder cannot be opened; problems of the file are recorded in it.
  model_place(const std::filesystem::path& below, const std::filesystem::path& file);
};

/// A model and copies of its external data, in a new folder below TMPDIR (default /tmp) that only
/// this user can read. ONNX Runtime maps external data while a session exists; it maps these
/// copies, which have no names once the folder is removed, so later changes of the original files
/// reach no session. The copies keep their disk space (or memory, on a tmpfs) until the session is
/// destroyed. Cost: reads and writes every byte once.
class private_copy {
 public:
  /// @param in Place of the model, for reading its file; `locations` are relative to its folder.
  /// @param name Of the model's file.
  /// @throws config_error With the location: if it fails `check_location`; if its target is
  /// missing, is no regular file, lies outside the folder (links are only followed within the
  /// folder), has hard links outside `in.names_in`, changes while it is copied, or does not fit
  /// into TMPDIR. Also if the model's file has changed since it was opened.
  private_copy(model_place& in, const std::filesystem::path& name,
               std::span<const std::string> locations);
  /// Removes the folder.
  ~private_copy();
  private_copy(const private_copy&) = delete;
  private_copy& operator=(const private_copy&) = delete;

  /// Path of the model's copy.
  [[nodiscard]] const std::filesystem::path& model() const noexcept { return model_; }

 private:
  std::filesystem::path folder_;
  std::filesystem::path model_;
};

}  // namespace cohort::runtime::onnx::detail
