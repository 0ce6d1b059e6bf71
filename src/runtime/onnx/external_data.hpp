// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which other files an ONNX model names for its weights, told before anything opens them, and
/// copies of those files that nothing but this process can change.
#pragma once

#include <runtime/regular_file.hpp>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace cohort::runtime::onnx::detail {

/// The locations of external data in a model's bytes, in order, each once. Reads the structure of
/// the message alone, whatever its weights are: O(messages), recursing at most 100 deep. Of a file
/// 64 KiB at a time are in memory.
/// @throws config_error If the bytes are no whole message of an ONNX model; does not name the file.
[[nodiscard]] std::vector<std::string> external_locations(std::span<const std::byte> model);
[[nodiscard]] std::vector<std::string> external_locations(runtime::detail::regular_file& model);

/// @throws config_error If a location is not below the folder of its model: it is empty, absolute
/// or has "..".
void check_location(const std::string& location);

/// A model's file and the folders that it lies in, opened once.
struct model_place {
  runtime::detail::descriptor folder;    ///< Of the file: where its external data lie.
  runtime::detail::descriptor names_in;  ///< Where all hard links to them must lie.
  runtime::detail::regular_file file;

  /// @param below Empty: `file` is opened as it is named. Else the folder of a repository, which
  /// `file`, NAME/VERSION/FILE, is opened below; all hard links must lie in NAME.
  /// @throws config_error If a folder cannot be opened; the file may have a problem.
  model_place(const std::filesystem::path& below, const std::filesystem::path& file);
};

/// A model and copies of its external data, in a new folder below TMPDIR (default /tmp) that only
/// this user can read. ONNX Runtime maps external data for as long as a session lives; it maps
/// these copies, which no longer have names once the folder is removed, so a later change of the
/// original files reaches no session. The copies keep their disk space (or memory, on a tmpfs)
/// until the session is destroyed. Cost: reads and writes every byte once.
class private_copy {
 public:
  /// @param in Where the model lies, which its file is read from; `locations` are relative to its
  /// folder. @param name Of the model's file.
  /// @throws config_error Naming the location: if it fails `check_location`; if what it leads to is
  /// missing, is no regular file, lies outside the folder (each link is followed below the folder
  /// alone), has hard links outside `in.names_in`, changes while it is copied, or does not fit into
  /// TMPDIR. If the model's file has changed since it was opened.
  private_copy(model_place& in, const std::filesystem::path& name,
               std::span<const std::string> locations);
  /// Removes the folder.
  ~private_copy();
  private_copy(const private_copy&) = delete;
  private_copy& operator=(const private_copy&) = delete;

  /// Of the model's copy.
  [[nodiscard]] const std::filesystem::path& model() const noexcept { return model_; }

 private:
  std::filesystem::path folder_;
  std::filesystem::path model_;
};

}  // namespace cohort::runtime::onnx::detail
