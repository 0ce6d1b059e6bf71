// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include "launches.hpp"

namespace cohort::llama::device {
namespace {

template <class Program, class Args>
__global__ void __launch_bounds__(Program::most_threads) kernel(Args a) {
  gpu_block b;
  Program::run(b, a);
}

struct launcher {
  cudaStream_t stream;

  template <class Program, class Args>
  void operator()(unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared,
                  const Args& a) const {
    if (x == 0 || y == 0 || z == 0) return;
    const unsigned bytes = shared * static_cast<unsigned>(sizeof(float));
    // Beyond 48 KB a kernel must ask. Cheap, and allowed while a graph is captured.
    if (bytes > 48U << 10U &&
        cudaFuncSetAttribute(kernel<Program, Args>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)) != cudaSuccess) {
      return;
    }
    kernel<Program, Args><<<dim3{x, y, z}, threads, bytes, stream>>>(a);
  }
};

}  // namespace

void launch(cudaStream_t s, int element, const embed_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const norm_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const rotate_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const attend_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const prefill_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const swiglu_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch(cudaStream_t s, int element, const choose_arguments& a) {
  enqueue(launcher{s}, element, a);
}

}  // namespace cohort::llama::device
