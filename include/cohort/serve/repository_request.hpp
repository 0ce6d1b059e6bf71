// SPDX-License-Identifier: Apache-2.0
/// @file
/// The model repository extension of the Open Inference Protocol: what the bodies of its calls ask.
#pragma once

#include <cohort/serve/infer_request.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace cohort::serve {

/// The calls that have a body.
enum class repository_call { index, load, unload };

/// Longer bodies are refused unread: to parse one takes up to 14 times its length of memory, which
/// is counted nowhere.
inline constexpr std::size_t most_repository_body = std::size_t{256} << 10U;

/// What a call asks beyond its path.
struct repository_request {
  bool only_ready = false;  ///< `ready` of an index: models that are not ready are left out.
  /// `parameters.config` of a load: what stands for the model's configuration; empty: its file.
  std::string config{};
};

/// Parses the body of a call: empty, or a JSON object. Files that a
/// client sends, `parameters.file:...`, are refused by name, for nothing here keeps them;
/// `parameters.unload_dependents` may be either, since no model depends on another. Fields that the
/// protocol does not know are refused as well, lest a misspelt one be taken for done. Any thread.
[[nodiscard]] std::variant<repository_request, protocol_error> parse_repository_request(
    repository_call call, std::string_view body);

}  // namespace cohort::serve
