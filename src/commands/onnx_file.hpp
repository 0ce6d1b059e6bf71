// SPDX-License-Identifier: Apache-2.0
/// @file
/// What commands that take files of ONNX ask of their names, lengths and content.
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

/// NAME=FILE.onnx or FILE.onnx alone. @throws input_error If the name cannot be a model's.
[[nodiscard]] onnx_subject parse_onnx_subject(std::string_view option, const std::string& item);

/// Whether a model may be called so: the name is that of files that are written, and a column of
/// others.
[[nodiscard]] bool is_plain_name(std::string_view name) noexcept;

/// --max-length; if it is not given, what the configuration beside the file says.
[[nodiscard]] std::uint32_t parse_max_length(const text_option& given, const std::string& file);

/// A file's bytes. @throws input_error If it cannot be read, or is larger than a model may be.
[[nodiscard]] std::string read_onnx_file(const std::string& path);

}  // namespace cohort::commands
