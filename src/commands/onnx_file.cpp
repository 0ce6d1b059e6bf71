// SPDX-License-Identifier: Apache-2.0
#include "onnx_file.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <formats/model_repository.hpp>
#include <formats/onnx_graph.hpp>
#include <formats/text.hpp>
#include <models/onnx_factory.hpp>

namespace cohort::commands {

using formats::input_error;

onnx_subject parse_onnx_subject(std::string_view option, const std::string& item) {
  const std::size_t equals = item.find('=');
  const std::string file = equals == std::string::npos ? item : item.substr(equals + 1);
  std::string name =
      equals == std::string::npos ? models::name_of_onnx_file(file) : item.substr(0, equals);
  if (!is_plain_name(name)) {
    formats::fail(option, formats::quote_short(item), "a name of letters, digits, _, - and .");
  }
  return {std::move(name), file};
}

bool is_plain_name(std::string_view name) noexcept {
  return !name.empty() && name.size() <= 128 && name.front() != '.' &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") ==
             std::string_view::npos;
}

std::uint32_t parse_max_length(const text_option& given, const std::string& file) {
  if (!given) return formats::max_length_of(file);
  return static_cast<std::uint32_t>(
      formats::parse_integer("--max-length", *given, {.low = 1, .high = 1U << 20U}));
}

std::string read_onnx_file(const std::string& path) {
  std::error_code failed;
  const auto bytes = std::filesystem::file_size(path, failed);
  if (failed) throw input_error{fmt::format("{}: cannot be read: {}", path, failed.message())};
  const std::size_t most = formats::onnx_limits{}.bytes;
  if (bytes > most) {
    throw input_error{fmt::format("{}: {} bytes: expected at most {}", path, bytes, most)};
  }
  std::string text(bytes, '\0');
  std::ifstream in{path, std::ios::binary};
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!in) throw input_error{fmt::format("{}: cannot be read", path)};
  return text;
}

}  // namespace cohort::commands
