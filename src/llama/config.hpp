// SPDX-License-Identifier: Apache-2.0
/// @file
/// The shape of a Llama model, from a config.json or by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::llama {

/// How rotary positions are stretched for long contexts; the names are those of transformers.
enum class rope_type : std::uint8_t {
  plain,   ///< Not at all.
  linear,  ///< All frequencies are slowed by a factor.
  llama3,  ///< Low frequencies are slowed, high ones kept, between them a blend.
  yarn,    ///< The same, blended by dimension, and queries and keys grow.
};

struct rope_stretch {
  rope_type type = rope_type::plain;
  double factor = 1;
  double low_frequency = 1;  ///< Of llama3: turns over the original positions; likewise the next.
  double high_frequency = 4;
  double original_positions = 8192;  ///< Of llama3 and yarn.
  double fast = 32;                  ///< Of yarn, `beta_fast`: turns above which none is slowed.
  double slow = 1;                   ///< `beta_slow`: turns below which all are.
  double growth = 1;                 ///< `attention_factor`: of queries and of keys, each.
  bool truncates = true;             ///< The dimensions between which yarn blends are whole.

  friend bool operator==(const rope_stretch&, const rope_stretch&) = default;
};

/// Llama: RMSNorm, rotary positions (halves rotated), grouped-query attention, SwiGLU. Of its kin
/// Mistral is the same without a window, Qwen 2 has biases, Qwen 3 norms in its attention.
struct llama_config {
  std::size_t layers = 2;
  std::size_t hidden = 64;
  std::size_t heads = 4;
  std::size_t kv_heads = 2;
  std::size_t head_size = 16;
  std::size_t ffn = 128;
  std::size_t vocabulary = 259;
  std::size_t max_positions = 2048;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  rope_stretch stretch{};
  bool tied = false;      ///< The output matrix is the embedding.
  bool qkv_bias = false;  ///< Queries, keys and values have biases: Qwen 2.
  bool qk_norm = false;   ///< Each head of queries and keys is normed before rotation: Qwen 3.
  std::int32_t begin_token = 256;
  std::vector<std::int32_t> end_tokens{257};

  [[nodiscard]] std::size_t kv_width() const noexcept { return kv_heads * head_size; }
  [[nodiscard]] std::size_t q_width() const noexcept { return heads * head_size; }
  /// Bytes of keys and values of one column, in f32.
  [[nodiscard]] std::size_t column_bytes() const noexcept {
    return layers * 2 * kv_width() * sizeof(float);
  }
  /// Parameters, the output matrix counted if it is not tied.
  [[nodiscard]] std::size_t parameters() const noexcept;

  friend bool operator==(const llama_config&, const llama_config&) = default;
};

/// Reads a Hugging Face config.json. Rotary positions are taken from `rope_parameters`,
/// `rope_theta` and `rope_scaling`, which may not contradict each other. @param origin Named in
/// errors.
/// @throws config_error On one line, if a field is missing or out of range, or the model is not a
///         Llama as above: what would change its output must be absent or neutral.
[[nodiscard]] llama_config parse_config(std::string_view text, const std::string& origin);

/// Reads a generation_config.json: its `eos_token_id`, if it has any, is what ends texts instead of
/// that of config.json, as in transformers. The rest are defaults of requests and does not count.
/// @throws config_error On one line, naming `origin`, if they are not tokens of the vocabulary.
void read_generation_config(std::string_view text, const std::string& origin, llama_config& c);

/// The config with no more positions than texts can have whose keys and values, of elements of
/// `element_bytes`, must fit in `kv_bytes`, and one more, so that what does not fit is refused as
/// before. Tables of positions are made for them: a config may claim any number.
[[nodiscard]] llama_config served_config(llama_config c, std::uint64_t kv_bytes,
                                         std::size_t element_bytes);

/// The text of a config.json that `parse_config` reads back.
[[nodiscard]] std::string write_config(const llama_config& c);

/// A named size for models with random weights, over bytes: tiny, small, medium or large.
/// @throws config_error If there is none of that name.
[[nodiscard]] llama_config named_config(std::string_view name);

}  // namespace cohort::llama
