// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a .cu file finds when it is compiled for the software CUDA: blocks one after the other, the
/// threads of one in turns, from barrier to barrier.
#pragma once

#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include <support/cuda/software_cuda.hpp>

namespace cohort::test::software_cuda {

/// Where in the grid the calling thread is.
struct grid_place {
  uint3 thread, block;
  dim3 threads, blocks;
};
[[nodiscard]] const grid_place& here();
/// Calls `kernel` for every thread of every block.
void run_grid(unsigned blocks, unsigned threads, const std::function<void()>& kernel);
/// Until all threads of the block have come here.
void barrier();
[[nodiscard]] float exchange(float x, unsigned lane_mask);
/// Nanoseconds. A kernel that asks again and again pauses meanwhile; threads of a block do so
/// together, so that time is long over for all but the first.
[[nodiscard]] long long clock_now();

/// What stands for `kernel<<<blocks, threads, shared, stream>>>`.
struct launch_shape {
  unsigned blocks, threads;
  std::size_t shared_bytes;
  cudaStream_t stream;

  template <class Kernel>
  auto of(Kernel kernel) const {
    return [kernel, shape = *this](auto... args) {
      launch(shape.stream, shape.blocks, shape.threads, [kernel, shape, args...] {
        run_grid(shape.blocks, shape.threads, [&] { kernel(args...); });
      });
    };
  }
};

}  // namespace cohort::test::software_cuda

template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, Kernel* kernel) {
  return cudaFuncGetAttributes(a, reinterpret_cast<const void*>(kernel));
}

#undef __shared__
#define __shared__ static thread_local  // The threads of a block take turns on one of the host's.
#define threadIdx (cohort::test::software_cuda::here().thread)
#define blockIdx (cohort::test::software_cuda::here().block)
#define blockDim (cohort::test::software_cuda::here().threads)
#define gridDim (cohort::test::software_cuda::here().blocks)
#define __syncthreads cohort::test::software_cuda::barrier
#define __shfl_xor_sync(mask, x, lanes) \
  cohort::test::software_cuda::exchange(x, static_cast<unsigned>(lanes))
#define clock64 cohort::test::software_cuda::clock_now
