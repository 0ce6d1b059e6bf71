// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of ONNX files for commands: names, lengths and content.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "commands.hpp"

namespace cohort::commands {

/// A model in a file.
struct onnx_subject {
  std::string name;
  std::string file;  ///< Or the folder of its stages.
};

/// Parses NAME=FILE.onnx or FILE.onnx. @throws input_error If the name is not valid for a model.
[[nodiscard]] onnx_subject parse_onnx_subject(std::string_view option, const std::string& item);

/// Whether a model may have this name, which becomes part of file names and CSV columns.
[[nodiscard]] bool is_plain_name(std::string_view name) noexcept;

/// Parses --max-length; the default is that of the configuration beside the file.
[[nodiscard]] std::uint32_t parse_max_length(const text_option& given, const std::string& file);

/// A file's bytes. @throws input_error If it cannot be read, or is larger than a model may be.
[[nodiscard]] std::string read_onnx_file(const std::string& path);

}  // namespace cohort::commands
