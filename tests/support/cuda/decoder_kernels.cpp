// SPDX-License-Identifier: Apache-2.0
// The decoder's programs as kernels of the software CUDA, block by block.
#include <atomic>
#include <cstdint>

#include <llama/cuda/emulated_block.hpp>
#include <llama/cuda/kernels.hpp>
#include <llama/cuda/launches.hpp>

#include "software_cuda.hpp"

namespace cohort::llama::device {
namespace {

template <class Args>
void enqueue_on_host(cudaStream_t s, int element, const Args& a) {
  static std::atomic<std::uint32_t> seed{0};
  const emulated_launcher with{++seed};
  test::software_cuda::launch(s, 1, 1, [=] { enqueue(with, element, a); });
}

}  // namespace

#define COHORT_LAUNCH(arguments) \
  void launch(cudaStream_t s, int element, const arguments& a) { enqueue_on_host(s, element, a); }
COHORT_LAUNCH(embed_arguments)
COHORT_LAUNCH(norm_arguments)
COHORT_LAUNCH(rotate_arguments)
COHORT_LAUNCH(attend_arguments)
COHORT_LAUNCH(prefill_arguments)
COHORT_LAUNCH(swiglu_arguments)
COHORT_LAUNCH(choose_arguments)
COHORT_LAUNCH(product_arguments)
void launch_early(bool /*allowed*/) noexcept {}

}  // namespace cohort::llama::device
