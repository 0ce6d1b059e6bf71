// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operations of the models on the CUDA executor.
#pragma once

#include <cohort/runtime/cuda/executor.hpp>

#include "../ops.hpp"

namespace cohort::models {

/// Custom kernels, launched on a stream of the CUDA executor; products by cuBLAS.
class cuda_ops {
 public:
  using executor = runtime::cuda_executor;
  using stream = executor::stream;
  using buffer = executor::buffer;

  explicit cuda_ops(executor& e) noexcept : executor_{e} {}

  [[nodiscard]] buffer make_buffer(std::size_t bytes) { return executor_.allocate(bytes); }
  /// @throws device_error If the device has failed.
  [[nodiscard]] buffer upload(const float* data, std::size_t count);

  void copy(stream& s, const runtime::copy_request& r) { executor_.copy(s, r); }
  void gemm(stream& s, const runtime::gemm_request& r) { executor_.gemm(s, r); }
  void im2col(stream& s, const float* in, float* out, const window_shape& w);
  void col2im(stream& s, const float* in, float* out, const window_shape& w);
  void bias_activation(stream& s, float* x, const float* bias, std::size_t rows,
                       std::size_t columns, activation f);
  void add_activation(stream& s, float* x, const float* y, std::size_t count, activation f);
  void max_pool(stream& s, const float* in, float* out, const window_shape& w);
  void global_average(stream& s, const float* in, float* out, std::size_t images,
                      std::size_t positions, std::size_t channels);
  void layer_norm(stream& s, float* x, const float* gain, const float* bias, std::size_t rows,
                  std::size_t columns);
  void embed(stream& s, const std::int32_t* ids, const float* table, const float* positions,
             float* out, float* lengths, std::size_t sequences, std::size_t tokens,
             std::size_t width, std::size_t vocabulary);
  void split_heads(stream& s, const float* qkv, float* q, float* k, float* v, const head_shape& h);
  void merge_heads(stream& s, const float* in, float* out, const head_shape& h);
  void masked_softmax(stream& s, float* x, const float* lengths, const head_shape& h);

 private:
  executor& executor_;
};
static_assert(ops<cuda_ops>);

}  // namespace cohort::models
