// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of a Llama: from a Hugging Face directory or a seeded generator.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config.hpp"

namespace cohort::llama {

/// Matrices as Hugging Face stores them: row-major, one row an output.
struct layer_weights {
  std::vector<float> attention_norm;  ///< hidden
  std::vector<float> qkv;       ///< (q_width + 2 kv_width) × hidden: q, k, v below each other.
  std::vector<float> qkv_bias;  ///< q_width + 2 kv_width; empty if the config has none.
  std::vector<float> q_norm;    ///< head_size, for each head; empty if the config has none.
  std::vector<float> k_norm;    ///< The same.
  std::vector<float> out;       ///< hidden × q_width
  std::vector<float> ffn_norm;  ///< hidden
  std::vector<float> gate_up;   ///< 2 ffn × hidden: gate, then up.
  std::vector<float> down;      ///< hidden × ffn
};

struct llama_weights {
  llama_config config;
  std::vector<float> embedding;  ///< vocabulary × hidden
  std::vector<layer_weights> layers;
  std::vector<float> norm;  ///< hidden
  std::vector<float> head;  ///< vocabulary × hidden; empty if tied.

  [[nodiscard]] const float* output() const noexcept {
    return config.tied ? embedding.data() : head.data();
  }
};

/// Draws parameters; the same on every machine for one seed. Scaled so that activations keep their
/// size and the next token depends on all of the text.
[[nodiscard]] llama_weights random_weights(const llama_config& config, std::uint64_t seed);

/// Reads config.json, generation_config.json if there is one, and model.safetensors, or the shards
/// that model.safetensors.index.json names. F32, F16 and BF16 become f32. What would change the
/// model's output and is not ours (other dtypes, biases that are not zero, further tensors of the
/// decoder) is refused.
/// @throws config_error Naming the file and what is wrong with it, on one line.
[[nodiscard]] llama_weights load_weights(const std::string& directory);

/// The files that a model.safetensors.index.json names. @param origin Named in errors.
/// @throws config_error On one line, if it has no map of names, or one that leads out of its
/// folder.
[[nodiscard]] std::set<std::string> shard_names(std::string_view index, const std::string& origin);

/// Writes config.json and the weights (f32) in at most `shards` files; the folder must exist.
/// @throws config_error If a file cannot be written.
void save_weights(const llama_weights& w, const std::string& directory, std::size_t shards = 1);

/// A whole text file. @throws config_error If it cannot be read or is larger than 256 MiB.
[[nodiscard]] std::string read_text(const std::string& path);
/// @throws config_error If it cannot be written.
void write_text(const std::string& path, std::string_view text);

}  // namespace cohort::llama
