// SPDX-License-Identifier: Apache-2.0
#include "model_upload.hpp"

#include <cohort/core/error.hpp>

#include <fmt/format.h>
#include <formats/model_config.hpp>
#include <formats/text.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

namespace cohort::inference {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_write(const std::string& what,
                               std::error_code why = {errno, std::generic_category()}) {
  throw resource_error{
      fmt::format("{}: cannot be written to a temporary folder: {}", what, why.message())};
}

bool is_version(std::string_view text) {
  return !text.empty() && text.size() < 20 && text.front() != '0' &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

upload_folder::upload_folder(const std::string& model, const model_upload& sent) {
  if (!formats::is_model_name(model)) {
    formats::fail("model", formats::quote_short(model),
                  "1 to 128 letters, digits, '_', '-' and '.', the first no '.'");
  }
  std::error_code failed;
  const fs::path temporary = fs::temp_directory_path(failed);
  if (failed) cannot_write(model, failed);
  path_ = (temporary / "cohort-load-XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) cannot_write(model);
  try {
    for (const serve::model_file& f : sent.files) write(model, f);
  } catch (...) {
    fs::remove_all(path_, failed);
    throw;
  }
}

upload_folder::~upload_folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void upload_folder::write(const std::string& model, const serve::model_file& f) const {
  const std::size_t slash = std::min(f.name.find('/'), f.name.size());
  const std::string version = f.name.substr(0, slash);
  const std::string name = f.name.substr(std::min(slash + 1, f.name.size()));
  if (!is_version(version) || !formats::is_model_name(name)) {
    formats::fail(
        "parameters.file", formats::quote_short(f.name),
        "VERSION/FILE, such as 1/model.onnx: a number from 1 without leading zeros, and 1 "
        "to 128 letters, digits, '_', '-' and '.', the first no '.'");
  }
  const std::optional<std::string> content = serve::decode_base64(f.base64);
  if (!content) {
    throw formats::input_error{fmt::format("parameters.file:{}: is not valid base64", f.name)};
  }
  const fs::path to = fs::path{path_} / model / version / name;
  std::error_code why;
  if (fs::create_directories(to.parent_path(), why); why) cannot_write(f.name, why);
  std::ofstream out{to, std::ios::binary};
  out.write(content->data(), static_cast<std::streamsize>(content->size()));
  if (!out.flush()) cannot_write(f.name);
}

}  // namespace cohort::inference
