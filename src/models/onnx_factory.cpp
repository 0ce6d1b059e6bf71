// SPDX-License-Identifier: Apache-2.0
#include "onnx_factory.hpp"

#include <filesystem>
#include <string>

namespace cohort::models {

bool is_onnx_file(std::string_view name) noexcept { return name.ends_with(".onnx"); }

std::string name_of_onnx_file(std::string_view file) {
  const std::filesystem::path path{file};
  const std::filesystem::path version = path.parent_path().filename();
  // As it lies in a repository: NAME/1/model.onnx.
  const bool is_number =
      !version.empty() && version.string().find_first_not_of("0123456789") == std::string::npos;
  const std::filesystem::path model = path.parent_path().parent_path().filename();
  return is_number && !model.empty() ? model.string() : path.stem().string();
}

std::unique_ptr<host_model_factory> make_onnx_factory(const std::string& file,
                                                      runtime::host_executor& e) {
  return std::make_unique<onnx_factory>(
      e, std::make_shared<const runtime::onnx::session>(
             runtime::onnx::library::open(), file,
             runtime::onnx::session_options{.name = name_of_onnx_file(file)}));
}

}  // namespace cohort::models
