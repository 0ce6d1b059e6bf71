// SPDX-License-Identifier: Apache-2.0
/// @file
/// The programs of the decoder as CUDA kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "arguments.hpp"

namespace cohort::llama::device {

/// Enqueues the kernels that the arguments name, for elements 0 f32, 1 f16, 2 bf16. An error is
/// left to cudaGetLastError. Nothing is enqueued for no rows.
void launch(cudaStream_t s, int element, const embed_arguments& a);
void launch(cudaStream_t s, int element, const norm_arguments& a);
void launch(cudaStream_t s, int element, const rotate_arguments& a);
void launch(cudaStream_t s, int element, const attend_arguments& a);
void launch(cudaStream_t s, int element, const prefill_arguments& a);
void launch(cudaStream_t s, int element, const swiglu_arguments& a);
void launch(cudaStream_t s, int element, const choose_arguments& a);

}  // namespace cohort::llama::device
