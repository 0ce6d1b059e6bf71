// SPDX-License-Identifier: Apache-2.0
/// @file
/// The programs of the decoder as CUDA kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "arguments.hpp"

namespace cohort::llama::device {

/// Enqueues the kernels that the arguments name, for elements 0 f32, 1 f16, 2 bf16. An error is
/// left to cudaGetLastError. Nothing is enqueued for no rows. From compute capability 9 on, a
/// kernel's blocks may be placed while those of the one before still run; what earlier kernels
/// write they touch only after those have ended.
void launch(cudaStream_t s, int element, const embed_arguments& a);
void launch(cudaStream_t s, int element, const norm_arguments& a);
void launch(cudaStream_t s, int element, const rotate_arguments& a);
void launch(cudaStream_t s, int element, const attend_arguments& a);
void launch(cudaStream_t s, int element, const prefill_arguments& a);
void launch(cudaStream_t s, int element, const swiglu_arguments& a);
void launch(cudaStream_t s, int element, const choose_arguments& a);
void launch(cudaStream_t s, int element, const product_arguments& a);
/// For measurements: whether kernels may begin as said above. Thread safety: any thread.
void launch_early(bool allowed) noexcept;

}  // namespace cohort::llama::device
