// SPDX-License-Identifier: Apache-2.0
/// @file
/// The model repository extension of the Open Inference Protocol: what the bodies of its calls ask.
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

/// Longer bodies are refused unread, but for the files in a load: to parse one takes up to 14 times
/// its length of memory, which is counted nowhere.
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

/// What a call asks beyond its path.
struct repository_request {
  bool only_ready = false;  ///< `ready` of an index: models that are not ready are left out.
  /// `parameters.config` of a load: what stands for the model's configuration; empty: its file.
  std::string config{};
  std::vector<model_file> files{};  ///< Of a load: stand for the model's folder; none: that.
  bool with_dependents = false;     ///< `parameters.unload_dependents` of an unload.
};

/// Parses the body of a call: empty, or a JSON object. A load with files needs a configuration,
/// too, and has up to `most_load_files`, each name once. Fields that the protocol does not know are
/// refused as well, lest a misspelt one be taken for done. Any thread.
[[nodiscard]] std::variant<repository_request, protocol_error> parse_repository_request(
    repository_call call, std::string_view body);

/// The bytes of standard base64, with its padding or without; nothing if it is not valid. Its
/// characters may be escaped as JSON has it.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace cohort::serve
