// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model's parameters: from a seeded generator or from a safetensors file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace cohort::models {

/// A parameter of a model.
struct tensor_spec {
  std::string name;
  std::vector<std::size_t> shape;
  float scale = 0;   ///< Standard deviation when generated; 0: constant.
  float offset = 0;  ///< Mean when generated.

  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t n = 1;
    for (const std::size_t d : shape) n *= d;
    return n;
  }
};

/// Parameters by name, in host memory, row-major.
using weight_map = std::map<std::string, std::vector<float>>;

/// Draws the parameters; the same on every machine for one seed and name.
[[nodiscard]] weight_map generate_weights(std::span<const tensor_spec> specs, std::uint64_t seed);

/// Reads the parameters from a safetensors file (only F32; other tensors in it are ignored).
/// @throws config_error With the file and the error, in one line.
[[nodiscard]] weight_map load_weights(std::span<const tensor_spec> specs, const std::string& path);

/// Takes the parameters from the bytes of a safetensors file. @throws config_error As above.
[[nodiscard]] weight_map parse_safetensors(std::span<const tensor_spec> specs,
                                           std::span<const std::byte> bytes,
                                           const std::string& origin);

/// The bytes of a safetensors file with these parameters.
[[nodiscard]] std::vector<std::byte> write_safetensors(std::span<const tensor_spec> specs,
                                                       const weight_map& weights);

}  // namespace cohort::models
