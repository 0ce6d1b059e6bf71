// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command line of the LLM server.
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

/// The options from the command line, checked and with defaults.
struct options {
  serve::http_options http{.name = "llm_server", .port = 8000, .body_limit = std::size_t{1} << 20U};
  serve::life_options life{.drain_timeout_s = 30};
  service_options service{};  ///< Except the memory.
  memory_options memory{};
  std::string executor = "host";  ///< Or cuda; or auto: a GPU if there is one.
  llama::gpu_options gpu{};
  std::string model;            ///< A Hugging Face directory; empty: random weights.
  std::string random = "tiny";  ///< Size of the random weights.
  std::uint64_t weights_seed = 1;
  std::string name;                    ///< Name of the model; empty: from the directory or size.
  std::string chat_template = "auto";  ///< Or one of `chat_forms`.
  std::uint32_t max_choices = 128;     ///< Maximum sequences of one request.
  bool lenient = false;                ///< Ignore unknown fields in requests.
  std::vector<std::string> api_keys;   ///< Empty, and no file: no key is needed.
  std::string api_key_file;
};

/// Parses the command line. For --help, --version and errors (status 2, one line) it prints and
/// exits.
[[nodiscard]] options parse_options(int argc, char** argv);

}  // namespace cohort::chat
