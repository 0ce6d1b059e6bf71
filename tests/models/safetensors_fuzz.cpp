// SPDX-License-Identifier: Apache-2.0
// Any bytes are read as a safetensors file, or refused with a config_error.
#include <cohort/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <models/weights.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<cohort::models::tensor_spec> specs{{"a", {2}, 1.0F}, {"b", {1}}};
  try {
    (void)cohort::models::parse_safetensors(specs, std::as_bytes(std::span{data, size}), "f");
  } catch (const cohort::config_error&) {
  }
  return 0;
}
