// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matrix products by cuBLAS, loaded when first needed.
#pragma once

#include <cuda_runtime_api.h>

#include <cohort/runtime/cuda/stream.hpp>
#include <cohort/runtime/executor.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace cohort::runtime::cuda {

/// Whether cuBLAS can be used in this process, and if not, why: one line. Loads the library at the
/// first call, so that a program linked with cohort::cuda starts without it.
/// Thread safety: any thread.
[[nodiscard]] const std::string& why_no_blas();

/// A cuBLAS handle bound to one stream, with a workspace of its own: streams never share one, so
/// products on different streams neither wait for nor overwrite each other. f32 inputs are
/// multiplied in full precision; all products accumulate in f32, but cuBLAS may add up parts of a
/// product in the type of the output. Thread safety: one thread at a time.
class blas {
 public:
  /// Takes `workspace_bytes` from the current device; 0 leaves the workspace to cuBLAS.
  /// @throws resource_error If cuBLAS cannot be loaded. @throws cuda_error If it fails to start.
  explicit blas(std::size_t workspace_bytes);
  ~blas();
  blas(const blas&) = delete;
  blas& operator=(const blas&) = delete;

  /// Later products go to `s`. The work on the former stream must be ordered before: the workspace
  /// moves along. @param multiprocessors Multiprocessors of the stream's partition; 0 means all.
  void bind(stream_view s, unsigned multiprocessors = 0);
  /// Forgets the stream. Call it before the stream is destroyed.
  void unbind() noexcept;
  /// Enqueues a product. @throws config_error For sizes beyond 2³¹ − 1. @throws cuda_error
  void multiply(const gemm_request& g);

 private:
  void* handle_ = nullptr;  // cublasHandle_t: its headers stay out of ours.
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_;
};

}  // namespace cohort::runtime::cuda
