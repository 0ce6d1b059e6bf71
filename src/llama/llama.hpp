// SPDX-License-Identifier: Apache-2.0
/// @file
/// The decoder: rows of tokens in, logits out, keys and values where the caller says.
#pragma once

#include <cohort/kv/batch/column_window.hpp>
#include <cohort/kv/batch/prepared.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weights.hpp"

namespace cohort::llama {

/// Keys and values of one sequence: where they lie. Of layer l, part p (0 keys, 1 values), head h
/// and column c the values start at data + l · layer + p · part + h · head + c · head_size.
struct kv_ref {
  float* data = nullptr;
  std::size_t layer = 0;
  std::size_t part = 0;
  std::size_t head = 0;
};

/// The strides of [layer][2][slot][head][column][head_size] at a slot.
[[nodiscard]] kv_ref batch_kv(const llama_config& c, float* data, std::size_t slots,
                              std::size_t columns, std::size_t slot) noexcept;
/// The strides of packed columns, [layer][2][head][column][head_size].
[[nodiscard]] kv_ref packed_kv(const llama_config& c, float* data, std::size_t columns) noexcept;

/// Cosines, then sines, of half a head for each position, [max_positions][head_size]; YaRN's with
/// the growth of queries and keys.
[[nodiscard]] std::vector<float> position_turns(const llama_config& c);

/// One token to compute. Rows of one sequence may stand in one call if each comes after those whose
/// columns it attends to.
struct token_row {
  kv::token_id token = 0;
  std::uint32_t position = 0;
  kv_ref kv{};
  std::uint32_t write = 0;                 ///< Column that receives its keys and values.
  std::span<const kv::column_run> runs{};  ///< Columns it attends to, in order, its own included.
  float* logits = nullptr;                 ///< Of the vocabulary; null: not wanted.
};

/// A Llama on the host, f32. A row's results are the same bits whatever rows stand beside it.
/// Thread safety: `forward` by any number of threads, each with its own scratch.
class llama {
 public:
  explicit llama(llama_weights weights);

  [[nodiscard]] const llama_config& config() const noexcept { return weights_.config; }

  /// Buffers of `forward`, which grow with the number of rows and columns.
  struct scratch {
    std::vector<float> x, n, qkv, attended, gate_up, activated, picked, logits, scores;
  };

  /// Computes the rows. Tokens must be in the vocabulary, positions below max_positions.
  void forward(std::span<const token_row> rows, scratch& s) const;

 private:
  llama_weights weights_;
  std::vector<float> turns_;  // [position][cos, sin][head_size / 2].
};

}  // namespace cohort::llama
