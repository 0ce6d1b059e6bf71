// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model under load: its metadata, its requests and its answers.
#pragma once

#include <cohort/serve/infer_request.hpp>
#include <cohort/serve/load.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::serve {

inline constexpr std::size_t load_variants = 16;

/// A request that is sent.
struct load_body {
  std::vector<std::byte> row;  ///< Its input, in the layout of `runtime::row_layout`.
  std::string text;
  std::size_t json_length = 0;  ///< Length of the JSON part; 0: all is JSON.
};

struct load_target {
  model_meta meta;
  std::string path;
  std::vector<load_body> bodies;  ///< By variant.
};

[[noreturn]] void metadata_not_understood(const std::string& what);

/// @param metadata The server's metadata of the model.
/// @throws config_error If that is not understood, or the model cannot be used with these options.
[[nodiscard]] load_target make_load_target(const load_options& o, const std::string& name,
                                           const std::string& metadata);

/// The values of an answer's first output; empty if it is not understood.
/// @param json_length The value of `json_length_field`; empty: all is JSON.
[[nodiscard]] std::vector<float> read_first_output(const std::string& body,
                                                   std::string_view json_length);

}  // namespace cohort::serve
