// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model that a client sends with its load request: `model_upload`, and the folder to load it
/// from.
#pragma once

#include <cohort/serve/byte_ledger.hpp>
#include <cohort/serve/repository_request.hpp>

#include <string>
#include <vector>

namespace cohort::inference {

/// The files that a client has sent.
struct model_upload {
  std::vector<serve::model_file> files;
  serve::held_bytes memory;  ///< Memory of the files.
};

/// A private folder in `TMPDIR` (default /tmp) with the files in a repository's layout. The
/// destructor removes it.
class upload_folder {
 public:
  /// @param model Name that the client gave.
  /// @throws formats::input_error One line: a name or content that is not valid.
  /// @throws resource_error If the files cannot be written.
  upload_folder(const std::string& model, const model_upload& sent);
  ~upload_folder();
  upload_folder(const upload_folder&) = delete;
  upload_folder& operator=(const upload_folder&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  void write(const std::string& model, const serve::model_file& f) const;

  std::string path_;
};

}  // namespace cohort::inference
