// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parses the bodies of calls of the Open Inference Protocol's model repository extension.
#pragma once

#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cohort::serve {

/// The calls that have a body.
enum class repository_call { index, load, unload };

/// Longer bodies are refused unread, except the files in a load: parsing takes up to 14 times the
/// length in memory that is not accounted.
inline constexpr std::size_t most_repository_body = std::size_t{256} << 10U;

/// The longest body of a load with files.
inline constexpr std::size_t most_load_body = std::size_t{64} << 20U;
/// The most files in a load.
inline constexpr std::size_t most_load_files = 64;

/// `parameters.file:NAME` of a load.
struct model_file {
  std::string name{};    ///< As it came: VERSION/FILE if it is valid.
  std::string base64{};  ///< Its content, as it came.
};

/// Parameters of a call beyond its path.
struct repository_request {
  bool only_ready = false;  ///< `ready` of an index: models that are not ready are omitted.
  /// `parameters.config` of a load: replaces the model's configuration file; empty: the file.
  std::string config{};
  std::vector<model_file> files{};  ///< Of a load: replace the model's folder; none: the folder.
  bool with_dependents = false;     ///< `parameters.unload_dependents` of an unload.
};

/// Parses the body of a call: empty, or a JSON object. A load with files also needs a
/// configuration, and has up to `most_load_files`, each name once. Unknown fields are refused, so
/// that a misspelt one is noticed. Any thread.
[[nodiscard]] std::variant<repository_request, protocol_error> parse_repository_request(
    repository_call call, std::string_view body);

/// Decodes standard base64, with or without padding; nothing if it is not valid. Its characters may
/// be escaped as in JSON.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace cohort::serve
