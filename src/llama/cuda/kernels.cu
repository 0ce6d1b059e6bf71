// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

#include <array>
#include <atomic>
#include <type_traits>

#include "launches.hpp"

namespace cohort::llama::device {
namespace {

std::atomic<bool> early{true};

/// Whether a program asks for what earlier kernels wrote only behind its own `await_earlier`.
template <class Program, class = void>
constexpr bool awaits_itself = false;
template <class Program>
constexpr bool awaits_itself<Program, std::void_t<decltype(Program::awaits_itself)>> = true;

/// Blocks of a program that a multiprocessor must have registers for.
template <class Program, class = void>
constexpr unsigned least_blocks = 1;
template <class Program>
constexpr unsigned least_blocks<Program, std::void_t<decltype(Program::least_blocks)>> =
    Program::least_blocks;

template <class Program, class Args>
__global__ void __launch_bounds__(Program::most_threads, least_blocks<Program>) kernel(Args a) {
  gpu_block b;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if constexpr (!awaits_itself<Program>) b.await_earlier();
  Program::run(b, a);
}

/// Whether code of the present device may begin early: it must wait, and run behind a kernel, which
/// embedding does not, as it follows a copy.
template <class Program, class Args>
bool may_begin_early() {
  if (std::is_same_v<Args, embed_arguments>) return false;
  constexpr int most = 64;                                    // Devices with a known answer.
  static std::array<std::atomic<signed char>, most> known{};  // 1: it may, -1: not, 0: unknown.
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const bool is_remembered = device < most;
  if (is_remembered && known[device] != 0) return known[device] > 0;
  cudaFuncAttributes found{};
  const bool may =
      cudaFuncGetAttributes(&found, kernel<Program, Args>) == cudaSuccess && found.ptxVersion >= 90;
  if (is_remembered) known[device] = may ? 1 : -1;
  return may;
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
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how{};
    how.gridDim = dim3{x, y, z};
    how.blockDim = threads;
    how.dynamicSmemBytes = bytes;
    how.stream = stream;
    how.attrs = &attribute;
    how.numAttrs =
        may_begin_early<Program, Args>() && early.load(std::memory_order_relaxed) ? 1 : 0;
    cudaLaunchKernelEx(&how, kernel<Program, Args>, a);
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
void launch(cudaStream_t s, int element, const product_arguments& a) {
  enqueue(launcher{s}, element, a);
}
void launch_early(bool allowed) noexcept { early = allowed; }

}  // namespace cohort::llama::device
