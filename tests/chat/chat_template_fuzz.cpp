// SPDX-License-Identifier: Apache-2.0
// Any bytes are a tokenizer_config.json or a template, with a form of chats, or refused with a
// config_error of one line.
#include <chat/chat_template.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cohort::chat;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto check = [](auto read) {
    try {
      const chat_template t = read();
      if (to_string(t.form) == "?") std::abort();
    } catch (const cohort::config_error& e) {
      if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
    }
  };
  check([&] { return read_chat_settings(text, "f"); });
  check([&] { return read_chat_template(text, "f"); });
  return 0;
}
