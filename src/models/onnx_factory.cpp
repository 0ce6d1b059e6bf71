// SPDX-License-Identifier: Apache-2.0
#include "onnx_factory.hpp"

#include <cohort/core/error.hpp>
#include <runtime/regular_file.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "identity.hpp"

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
  // As in a repository: NAME/1/model.onnx.
  const bool is_number =
      !version.empty() && version.string().find_first_not_of("0123456789") == std::string::npos;
  const std::filesystem::path model = path.parent_path().parent_path().filename();
  return is_number && !model.empty() ? model.string() : path.stem().string();
}

std::string cut_from(const std::string& fingerprint, std::size_t stages) {
  return fingerprint + ' ' + std::to_string(stages) + '\n';
}

std::vector<std::filesystem::path> files_of_onnx(const std::string& file) {
  if (!is_stages_folder(file)) return {file};
  std::vector<std::filesystem::path> all;
  const auto next = [&] {
    return std::filesystem::path{file} / (std::to_string(all.size() + 1) + ".onnx");
  };
  do {  // The first missing file is reported by name.
    all.push_back(next());
  } while (std::filesystem::exists(next()));
  return all;
}

bool are_cut_from(const std::vector<std::filesystem::path>& stages,
                  const std::filesystem::path& model) {
  constexpr std::size_t most = 1000;
  runtime::detail::regular_file in{(stages.front().parent_path() / cut_from_file).string()};
  const auto said = in.read_all<std::string>(most);
  return in.problem().empty() &&
         said == cut_from(fingerprint_of_file(model.string()), stages.size());
}

std::unique_ptr<host_model_factory> make_onnx_factory(const std::string& file,
                                                      runtime::host_executor& e,
                                                      std::uint32_t max_size) {
  const auto runtime = onnx::library::open();
  const onnx::session_options how{.name = name_of_onnx_file(file), .max_size = max_size};
  const std::vector<std::filesystem::path> files = files_of_onnx(file);
  // As written by `cohort slice`: a statement of the stages' origin is checked.
  const std::filesystem::path whole = std::filesystem::path{file}.parent_path() / "model.onnx";
  if (is_stages_folder(file) && std::filesystem::exists(whole) &&
      std::filesystem::exists(files.front()) && !are_cut_from(files, whole)) {
    throw config_error{fmt::format(
        "{}: {} stages are not those that were cut from {} as it is now: cut it again with "
        "`cohort slice`",
        file, files.size(), whole.string())};
  }
  onnx_factory::sessions stages;
  for (const std::filesystem::path& path : files) {
    stages.push_back(std::make_shared<const onnx::session>(runtime, path, how));
  }
  return std::make_unique<onnx_factory>(e, std::move(stages));
}

}  // namespace cohort::models
