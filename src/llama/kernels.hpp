// SPDX-License-Identifier: Apache-2.0
/// @file
/// The few operations of a decoder on the host. Each result is a fixed sequence of operations on
/// its own inputs, whatever else is computed beside it: a row's bits do not depend on the batch.
#pragma once

#include <cohort/kv/batch/column_window.hpp>

#include <cstddef>
#include <span>

namespace cohort::llama {

/// y[i][n] = Σ x[i][k] · w[n][k] (+ y[i][n] if `add`), for `rows` rows of x. All row-major, rows of
/// y `y_pitch` apart. The sum runs in eight lanes over k, the lanes are added in a tree: the same
/// for any number of rows, which a BLAS does not promise.
void multiply(const float* x, const float* w, float* y, std::size_t rows, std::size_t outputs,
              std::size_t inputs, std::size_t y_pitch, bool add = false);

/// y = x / rms(x) · gain; y may be x.
void rms_norm(const float* x, const float* gain, float* y, std::size_t n, float epsilon);

/// Rotates the halves of each head by the angles of a position: `turns` holds cos, then sin, of
/// half a head.
void rotate(float* x, const float* turns, std::size_t heads, std::size_t head_size);

/// out = silu(gate) · up, of `n` values; gate and up lie behind each other.
void swiglu(const float* gate_up, float* out, std::size_t n);

/// Attention of the query heads that share one head of keys and values, over the runs of columns
/// given, in order. Scores, their sum and the values are added from the first of these columns on.
/// @param q `group` heads of `head_size`.  @param k, v Column 0 of that head; columns are
/// `head_size` apart.  @param scores Scratch of group × columns.  @param out As q.
void attend(const float* q, const float* k, const float* v, std::span<const kv::column_run> runs,
            std::size_t columns, std::size_t group, std::size_t head_size, float* scores,
            float* out);

}  // namespace cohort::llama
