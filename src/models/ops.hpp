// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations used by the example models: the `ops` concept.
#pragma once

#include <cohort/runtime/executor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "shapes.hpp"

namespace cohort::models {

/// A model's operations on a device: f32 operations on dense row-major tensors in the device's
/// memory, each enqueued on a stream and returning at once. Semantics, with rows × columns
/// matrices:
/// * `copy`, `gemm`: as in the executor concept.
/// * `im2col(s, in, out, w)`: row p of `out` is the window at output position p, kernel rows first,
///   channels last, zero outside of the image.
/// * `bias_activation(s, x, bias, rows, columns, f)`: x ← f(x + bias), bias for each column.
/// * `add_activation(s, x, y, count, f)`: x ← f(x + y).
/// * `col2im(s, in, out, w)`: the reverse, for transposed convolutions: each position of the image
///   `out` becomes the sum of the cells of all windows over it.
/// * `max_pool(s, in, out, w)`: positions outside of the image do not count; `global_average(s, in,
///   out, images, positions, channels)`.
/// * `layer_norm(s, x, gain, bias, rows, columns)`: each row to mean 0 and variance 1, then · gain
///   + bias; ε = 1e-5.
/// * `embed(s, ids, table, positions, out, lengths, sequences, tokens, width, vocabulary)`: out ←
///   table[id] + positions[t]; lengths[n] ← 1 + last token that is not 0, at least 1. Ids outside
///   of the vocabulary count as 0.
/// * `split_heads(s, qkv, q, k, v, h)`: tokens × 3 parts × heads → three of heads × tokens;
///   `merge_heads(s, in, out, h)`: back.
/// * `masked_softmax(s, x, lengths, h)`: rows of h.tokens, over the first lengths[n] columns of
///   each; 0 in the others. `make_buffer(bytes)` and `upload(data, count)` return owned device
///   memory; the latter waits. One stream by one thread at a time. Models: `host_ops`, `cuda_ops`.
template <class O>
concept ops = requires(O& o, typename O::stream& s, float* x, const float* c, float* lengths,
                       const std::int32_t* ids, std::size_t n, activation f, const window_shape& w,
                       const head_shape& h, const runtime::copy_request& copy,
                       const runtime::gemm_request& gemm) {
  typename O::buffer;
  { o.make_buffer(n) } -> std::same_as<typename O::buffer>;
  { o.upload(c, n) } -> std::same_as<typename O::buffer>;
  o.copy(s, copy);
  o.gemm(s, gemm);
  o.im2col(s, c, x, w);
  o.col2im(s, c, x, w);
  o.bias_activation(s, x, c, n, n, f);
  o.add_activation(s, x, c, n, f);
  o.max_pool(s, c, x, w);
  o.global_average(s, c, x, n, n, n);
  o.layer_norm(s, x, c, c, n, n);
  o.embed(s, ids, c, c, x, lengths, n, n, n, n);
  o.split_heads(s, c, x, x, x, h);
  o.merge_heads(s, c, x, h);
  o.masked_softmax(s, x, c, h);
};

}  // namespace cohort::models
