// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the kernels of the decoder are told. Pointers are to device memory, aligned to 16 bytes;
/// matrices are row-major.
/// C++17, since nvcc parses it.
#pragma once

#include <cstdint>

namespace cohort::llama::device {

/// One token to compute, as `token_row` of the host, with the columns that it attends to in at most
/// two runs. Keys of layer l and head h begin at kv + (2 · l · kv_heads + h) · plane, values
/// kv_heads · plane behind them; columns are head_size apart.
struct device_row {
  void* kv;
  std::uint64_t plane;  ///< Elements of one head: columns of the memory × head_size.
  std::int32_t token;
  std::uint32_t position;
  std::uint32_t write;           ///< Column that receives its keys and values.
  std::uint32_t first0, count0;  ///< Own columns, in order, the one written included.
  std::uint32_t first1, count1;  ///< Beyond the ring's seam; count 0: none.
  std::uint32_t unused;
};
/// Rows without columns compute nothing that is read: all they write is finite.

/// Consecutive rows of one prompt. Each attends to one column more than the one before, all of them
/// in one run.
struct row_tile {
  std::uint32_t first, count;  ///< At most `prefill_tile` rows.
};

/// Sizes that the programs can do; all else is refused when a decoder is made.
inline constexpr unsigned head_multiple = 8;
inline constexpr unsigned most_head_size = 256;

inline constexpr unsigned most_row_threads = 1024;  ///< Of the programs with a block for each row.
inline constexpr unsigned row_threads = 256;        ///< Of those with several blocks for a row.
inline constexpr unsigned head_threads = 64;        ///< Of those with a block for each head.
inline constexpr unsigned part_columns = 128;       ///< Columns a block of decode attention reads.
inline constexpr unsigned prefill_tile = 64;  ///< Rows, and columns at a time, of a prefill block.
inline constexpr unsigned few_rows = 16;      ///< That the decoder's own products take.
inline constexpr unsigned argmax_threads = 1024;

/// x[r] = table[token of r], widened.
struct embed_arguments {
  const device_row* rows;
  const void* table;
  float* x;
  std::uint32_t count, width;
};

/// x[p] += y[p], unless y is null; out[r] = x[p] / rms(x[p]) · gain. p is pick[r], or r if pick is
/// null; with pick, x is left as it is.
struct norm_arguments {
  float* x;
  const void* y;
  const float* gain;
  void* out;
  const std::uint32_t* pick;
  std::uint32_t count, width;
  float epsilon;
};

/// Rotates the queries of each row of qkv in place and its keys on their way into the cache, where
/// the values go too. `turns` holds cosines, then sines, of half a head for each position. Before
/// that it adds `bias` to all, and norms each head of queries and keys; null: it does not.
struct rotate_arguments {
  const device_row* rows;
  void* qkv;
  const float* turns;
  const float* bias;    ///< As a row of qkv.
  const float* q_norm;  ///< Gains of a head; with it k_norm.
  const float* k_norm;
  std::uint32_t count, layer, heads, kv_heads, head_size;
  float epsilon;
};

/// Attention of each row over its own columns. Split at every `part_columns` columns from the row's
/// first: if `parts` is 1 directly to out, else by `sums` (a head's values, for each part) and
/// `scales` (maximum and sum of each part), which a second kernel puts together in the order of the
/// parts. A row's result does not depend on `parts` being larger than it needs, nor on other rows.
struct attend_arguments {
  const device_row* rows;
  const void* qkv;
  void* out;
  float* sums;    ///< [row][head][part][head_size]
  float* scales;  ///< [row][head][part][2]
  std::uint32_t count, layer, heads, kv_heads, head_size;
  std::uint32_t parts;  ///< At least 1; a row has at most parts × part_columns columns.
};

/// The same for the rows of prompts, tile by tile.
struct prefill_arguments {
  const device_row* rows;
  const row_tile* tiles;
  const void* qkv;
  void* out;
  std::uint32_t tile_count, layer, heads, kv_heads, head_size;
};

/// out = silu(gate) · up; a row of gate_up is `width` gates, then as many ups.
struct swiglu_arguments {
  const void* gate_up;
  void* out;
  std::uint32_t count, width;
};

/// out = x · wᵀ of at most `few_rows` rows, f16 or bf16. `inputs` is a multiple of 8.
struct product_arguments {
  const void* x;
  const void* w;  ///< outputs × inputs; nothing writes it while kernels run.
  void* out;      ///< Null: it is added to `sum`.
  float* sum;     ///< count × outputs; null: to `out`.
  std::uint32_t count, outputs, inputs;
  bool gated;  ///< w has `outputs` rows of gates, then as many of ups; the result is silu(gate) ·
               ///< up.
};

/// The most likely token of a row, of equals the first, and the logarithm of its probability.
struct choice {
  std::int32_t token;
  float logprob;
};

/// Widens logits and chooses greedily.
struct choose_arguments {
  const void* logits;
  float* wide;  ///< Null: not wanted.
  choice* best;
  std::uint32_t count, vocabulary;
};

}  // namespace cohort::llama::device
