// SPDX-License-Identifier: Apache-2.0
/// @file
/// The LLM server's command line.
#pragma once

#include <cohort/serve/http.hpp>
#include <cohort/serve/server_life.hpp>

#include <llama/gpu_generator.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <chat/memory.hpp>
#include <chat/text_service.hpp>

namespace cohort::chat {

/// As the user wrote them, checked and with defaults.
struct options {
  serve::http_options http{.name = "llm_server", .port = 8000, .body_limit = std::size_t{1} << 20U};
  serve::life_options life{.drain_timeout_s = 30};
  service_options service{};  ///< But the memory.
  memory_options memory{};
  std::string executor = "host";  ///< Or cuda, or auto: a GPU if there is one.
  llama::gpu_options gpu{};
  std::string model;            ///< A Hugging Face directory; empty: random weights.
  std::string random = "tiny";  ///< Their size.
  std::uint64_t weights_seed = 1;
  std::string name;                    ///< Of the model; empty: from the directory or size.
  std::string chat_template = "auto";  ///< Or one of `chat_forms`.
  std::uint32_t max_choices = 128;     ///< Sequences of one request.
  bool lenient = false;                ///< Unknown fields of requests are ignored.
  std::vector<std::string> api_keys;   ///< Empty, and no file: no key is needed.
  std::string api_key_file;
};

/// Reads the command line. Prints and ends the program for --help, --version and mistakes (status
/// 2, one line).
[[nodiscard]] options parse_options(int argc, char** argv);

}  // namespace cohort::chat
