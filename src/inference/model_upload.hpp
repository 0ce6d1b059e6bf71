// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose files a client sends with its load: `model_upload`, and the folder that they are
/// loaded from.
#pragma once

#include <cohort/serve/byte_ledger.hpp>
#include <cohort/serve/repository_request.hpp>

#include <string>
#include <vector>

namespace cohort::inference {

/// What a client has sent.
struct model_upload {
  std::vector<serve::model_file> files;
  serve::held_bytes memory;  ///< What they take.
};

/// A private folder in `TMPDIR` (default /tmp) with the files in a repository's layout, which is
/// removed with this.
class upload_folder {
 public:
  /// @param model Its name, as a client has given it.
  /// @throws formats::input_error One line: a name or content that is not valid. resource_error:
  /// the files cannot be written.
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
