// SPDX-License-Identifier: Apache-2.0
// Any bytes are read as a file of a model's directory (safetensors, its index, config.json,
// tokenizer.json, tokenizer_config.json by the first byte), or refused with a config_error of one
// line.
#include <llama/config.hpp>
#include <llama/safetensors.hpp>
#include <llama/tokenizer.hpp>
#include <llama/weights.hpp>

#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span bytes = std::as_bytes(std::span{data + 1, size - 1});
  const std::string_view text{reinterpret_cast<const char*>(data + 1), size - 1};
  try {
    switch (data[0] % 5) {
      case 0:
        for (const auto& [name, t] : cohort::llama::read_safetensors(bytes, "f")) {
          if (t.type == cohort::llama::tensor_type::other) continue;
          std::vector<float> values(t.count());
          (void)cohort::llama::to_f32(t, values.data());
        }
        break;
      case 1: {
        auto c = cohort::llama::parse_config(text, "f");
        cohort::llama::read_generation_config(text, "f", c);
        if (cohort::llama::parse_config(cohort::llama::write_config(c), "f") != c) std::abort();
        break;
      }
      case 2: {
        const auto words = cohort::llama::tokenizer::parse(text, "f");
        (void)words.decode(words.encode(text));
        break;
      }
      case 3:
        for (const std::string& name : cohort::llama::shard_names(text, "f")) {
          if (name.find('/') != std::string::npos || name == "..") std::abort();
        }
        break;
      default:
        (void)cohort::llama::piece_settings::parse(text, "f");
        break;
    }
  } catch (const cohort::config_error& e) {
    if (std::string_view{e.what()}.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
