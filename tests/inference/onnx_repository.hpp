// SPDX-License-Identifier: Apache-2.0
/// @file
/// A folder of ONNX models for servers that are tested.
#pragma once

#include <formats/onnx_graph.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <support/scratch_file.hpp>

namespace cohort::test {

struct onnx_repository {
  onnx_repository() {
    std::filesystem::create_directories(folder);
    spill(token_file, "token-of-an-operator\n");
  }
  ~onnx_repository() {
    std::filesystem::remove_all(folder);
    std::filesystem::remove(token_file);
  }
  onnx_repository(const onnx_repository&) = delete;
  onnx_repository& operator=(const onnx_repository&) = delete;

  void add(const formats::onnx_model& m, const std::string& name, const std::string& config = "",
           int version = 1) const {
    const std::string at = folder + "/" + name + "/" + std::to_string(version);
    std::filesystem::create_directories(at);
    spill(at + "/model.onnx", formats::to_bytes(m));
    if (!config.empty()) spill(folder + "/" + name + "/config.pbtxt", config);
  }
  [[nodiscard]] std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{
        "--repository",         folder,    "--cache", "off", "--devices", "2",
        "--control-token-file", token_file};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string folder = scratch("repository");
  std::string token_file = scratch("tokens");
};

/// The field that lets a client load and unload its models.
inline const std::string shown_token = "Authorization: Bearer token-of-an-operator\r\n";

/// A field of a config.pbtxt.
inline std::string parameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value { string_value: \"" + value + "\" } }\n";
}

}  // namespace cohort::test
