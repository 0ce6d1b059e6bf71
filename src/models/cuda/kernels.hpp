// SPDX-License-Identifier: Apache-2.0
/// @file
/// The models' operations as kernels; ops.hpp defines each. C++17: nvcc compiles them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "../shapes.hpp"

namespace cohort::models::kernels {

void im2col(cudaStream_t s, const float* in, float* out, const window_shape& w);
void col2im(cudaStream_t s, const float* in, float* out, const window_shape& w);
void bias_activation(cudaStream_t s, float* x, const float* bias, std::size_t rows,
                     std::size_t columns, activation f);
void add_activation(cudaStream_t s, float* x, const float* y, std::size_t count, activation f);
void max_pool(cudaStream_t s, const float* in, float* out, const window_shape& w);
void global_average(cudaStream_t s, const float* in, float* out, std::size_t images,
                    std::size_t positions, std::size_t channels);
void layer_norm(cudaStream_t s, float* x, const float* gain, const float* bias, std::size_t rows,
                std::size_t columns);
void embed(cudaStream_t s, const std::int32_t* ids, const float* table, const float* positions,
           float* out, float* lengths, std::size_t sequences, std::size_t tokens, std::size_t width,
           std::size_t vocabulary);
void split_heads(cudaStream_t s, const float* qkv, float* q, float* k, float* v,
                 const head_shape& h);
void merge_heads(cudaStream_t s, const float* in, float* out, const head_shape& h);
void masked_softmax(cudaStream_t s, float* x, const float* lengths, const head_shape& h);

}  // namespace cohort::models::kernels
