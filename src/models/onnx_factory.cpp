// SPDX-License-Identifier: Apache-2.0
#include "onnx_factory.hpp"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace cohort::models {

namespace {

namespace onnx = runtime::onnx;

bool is_stages_folder(std::string_view name) noexcept {
  return name == "stages" || name.ends_with("/stages");
}

}  // namespace

bool is_onnx_file(std::string_view name) noexcept {
  return name.ends_with(".onnx") || is_stages_folder(name);
}

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
  const auto runtime = onnx::library::open();
  const onnx::session_options how{.name = name_of_onnx_file(file)};
  if (!is_stages_folder(file)) {
    return std::make_unique<onnx_factory>(
        e, std::make_shared<const onnx::session>(runtime, file, how));
  }
  onnx_factory::sessions stages;
  const auto stage = [&](std::size_t k) {
    return std::filesystem::path{file} / (std::to_string(k) + ".onnx");
  };
  do {  // The first is missed by its name.
    stages.push_back(std::make_shared<const onnx::session>(runtime, stage(stages.size() + 1), how));
  } while (std::filesystem::exists(stage(stages.size() + 1)));
  return std::make_unique<onnx_factory>(e, std::move(stages));
}

}  // namespace cohort::models
