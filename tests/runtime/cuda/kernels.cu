// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

namespace cohort::runtime::test_kernels {
namespace {

__device__ void wait_for(std::int64_t clocks) {
  const std::int64_t start = clock64();
  while (clock64() - start < clocks) {
  }
}

__global__ void copy_kernel(unsigned char* to, const unsigned char* from, std::size_t row_bytes,
                            std::size_t rows, std::size_t to_pitch, std::size_t from_pitch,
                            std::int64_t clocks) {
  wait_for(clocks);
  for (std::size_t i = threadIdx.x; i < row_bytes * rows; i += blockDim.x) {
    const std::size_t row = i / row_bytes;
    const std::size_t column = i % row_bytes;
    to[row * to_pitch + column] = from[row * from_pitch + column];
  }
}
__device__ long long nanoseconds() {
#ifdef __CUDACC__
  long long now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#else
  return clock64();  // In software it is one.
#endif
}
__global__ void hold_kernel(const volatile int* gate) {
  // Not for ever: a test that fails while it holds a stream must end, too.
  constexpr long long most_ns = 10'000'000'000LL;
  const long long start = nanoseconds();
  while (*gate == 0 && nanoseconds() - start < most_ns) {
  }
}
__global__ void spin_kernel(std::int64_t clocks) { wait_for(clocks); }
__global__ void nothing_kernel() {}
__global__ void fault_kernel(int* where) { *where = 1; }

}  // namespace

void copy(cudaStream_t s, void* to, const void* from, std::size_t row_bytes, std::size_t rows,
          std::size_t to_pitch, std::size_t from_pitch, std::int64_t clocks) {
  copy_kernel<<<1, 32, 0, s>>>(static_cast<unsigned char*>(to),
                               static_cast<const unsigned char*>(from), row_bytes, rows, to_pitch,
                               from_pitch, clocks);
}
void hold(cudaStream_t s, const int* gate) { hold_kernel<<<1, 1, 0, s>>>(gate); }
void spin(cudaStream_t s, unsigned blocks, std::int64_t clocks) {
  spin_kernel<<<blocks, 1, 0, s>>>(clocks);
}
void nothing(cudaStream_t s) { nothing_kernel<<<1, 1, 0, s>>>(); }
void fault(cudaStream_t s) { fault_kernel<<<1, 1, 0, s>>>(reinterpret_cast<int*>(8)); }

void load(cudaStream_t s) {
  copy(s, nullptr, nullptr, 0, 0, 0, 0, 0);
  spin(s, 1, 0);
  nothing(s);
  cudaFuncAttributes a;
  (void)cudaFuncGetAttributes(&a, hold_kernel);
  (void)cudaFuncGetAttributes(&a, fault_kernel);
}

}  // namespace cohort::runtime::test_kernels
