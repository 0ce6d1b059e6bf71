// SPDX-License-Identifier: Apache-2.0
// Any bytes are a tokenizer_config.json with a form of chats, or refused with a config_error of one
// line.
#include <llm_server/chat.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort::llm_server;
  try {
    const chat_form form = chat_form_in({reinterpret_cast<const char*>(data), size}, "f");
    if (to_string(form) == "?") std::abort();
  } catch (const cohort::config_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
