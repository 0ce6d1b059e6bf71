// SPDX-License-Identifier: Apache-2.0
// Any bytes are read as a file of a checkpoint (safetensors, config.json, tokenizer.json by the
// first byte), or refused with a config_error.
#include <llm/config.hpp>
#include <llm/safetensors.hpp>
#include <llm/tokenizer.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes = std::as_bytes(std::span{data + 1, size - 1});
  const std::string_view text{reinterpret_cast<const char*>(data + 1), size - 1};
  try {
    switch (data[0] % 3) {
      case 0:
        for (const auto& [name, t] : cohort::llm::read_safetensors(bytes, "f")) {
          std::vector<float> values(t.count());
          (void)cohort::llm::to_f32(t, values.data());
        }
        break;
      case 1:
        (void)cohort::llm::parse_config(text, "f");
        break;
      default:
        (void)cohort::llm::tokenizer::parse(text, "f").encode(text);
        break;
    }
  } catch (const cohort::config_error&) {
  }
  return 0;
}
