// SPDX-License-Identifier: Apache-2.0
/// @file
/// A block of GPU threads, as the programs of this folder see it. A program is written in phases:
/// `each(f)` calls f(t) for every thread t of the block; what threads tell each other goes through
/// shared memory, with a barrier between writing and reading, or through the sums and maxima of
/// neighbouring lanes. So the same text is a kernel on the GPU and, over `emulated_block`, a
/// program that a test can run and check anywhere. C++17, since nvcc parses it.
#pragma once

#include <cmath>

#include "element.hpp"

#if defined(__CUDACC__)

namespace cohort::llama::device {

/// sum (16 × 8) += w (16 × 16) · x (16 × 8) of a warp's threads, as PTX distributes them.
COHORT_LLM_DEVICE void multiply_tensor(float* sum, const std::uint32_t* w, const std::uint32_t* x,
                                       f16 /*element*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
}
COHORT_LLM_DEVICE void multiply_tensor(float* sum, const std::uint32_t* w, const std::uint32_t* x,
                                       bf16 /*element*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]));
}

/// The block that this thread belongs to. Everything is inlined away.
struct gpu_block {
  /// N values of each thread: registers, if all indices are known when compiling.
  template <class T, unsigned N>
  struct registers {
    COHORT_LLM_DEVICE explicit registers(gpu_block& /*b*/) {}
    COHORT_LLM_DEVICE T& at(unsigned /*thread*/, unsigned i) { return v[i]; }
    T v[N];
  };
  /// Floats that the block shares.
  struct shared_floats {
    COHORT_LLM_DEVICE float get(unsigned i) const { return p[i]; }
    COHORT_LLM_DEVICE void set(unsigned i, float x) { p[i] = x; }
    /// i must be a multiple of 4.
    COHORT_LLM_DEVICE pack<float> get4(unsigned i) const {
      return *reinterpret_cast<const pack<float>*>(p + i);
    }
    float* p;
  };

  COHORT_LLM_DEVICE unsigned x() const { return blockIdx.x; }
  COHORT_LLM_DEVICE unsigned y() const { return blockIdx.y; }
  COHORT_LLM_DEVICE unsigned z() const { return blockIdx.z; }
  COHORT_LLM_DEVICE unsigned threads() const { return blockDim.x; }

  template <class F>
  COHORT_LLM_DEVICE void each(F f) {
    f(threadIdx.x);
  }
  COHORT_LLM_DEVICE void barrier() { __syncthreads(); }
  /// `count` floats at `offset` (both in floats) of the block's shared memory.
  COHORT_LLM_DEVICE shared_floats shared(unsigned offset, unsigned /*count*/) {
    extern __shared__ float4 memory[];
    return {reinterpret_cast<float*>(memory) + offset};
  }
  /// 16 bytes that are read once and that nothing writes while kernels run; zeros if not wanted.
  /// Not by the path for constants: the compiler would move that behind `await_earlier`.
  COHORT_LLM_DEVICE words stream(const void* from, bool wanted) const {
    words to;
    asm volatile(
        "{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0; "
        "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0; "
        "@wanted ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(to.v[0]), "=&r"(to.v[1]), "=&r"(to.v[2]), "=&r"(to.v[3])
        : "l"(__cvta_generic_to_global(from)), "r"(static_cast<unsigned>(wanted)));
    return to;
  }
  /// 16 bytes that other kernels may have written and that threads share; zeros if not wanted.
  COHORT_LLM_DEVICE words load(const void* from, bool wanted) const {
    words to;
    asm volatile(
        "{ .reg .pred wanted; setp.ne.u32 wanted, %5, 0; "
        "mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0; "
        "@wanted ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(to.v[0]), "=&r"(to.v[1]), "=&r"(to.v[2]), "=&r"(to.v[3])
        : "l"(__cvta_generic_to_global(from)), "r"(static_cast<unsigned>(wanted)));
    return to;
  }
  /// What earlier kernels write may be read only behind it; see `launch`.
  COHORT_LLM_DEVICE void await_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
  /// For each warp, sum += w · xᵀ, where w is 16 × 32 and x is 8 × 32 elements T. Thread 4i + j of
  /// the warp holds elements 8j to 8j + 7 of rows i and i + 8 of w, in `w` from `w_at`, and of row
  /// i of x, at `x_at`; and of the sum, from `at`, rows i, i, i + 8, i + 8 and columns 2j, 2j + 1,
  /// 2j, 2j + 1. A tensor core wants elements 2j, 2j + 1, 2j + 8, 2j + 9 of 16: which 16 of the 32
  /// come first, and where, does not matter as long as it is the same in w and x.
  template <class T, class Sum, class W, class X>
  COHORT_LLM_DEVICE void multiply_tile(Sum& sum, unsigned at, W& w, unsigned w_at, X& x,
                                       unsigned x_at) {
#if __CUDA_ARCH__ >= 800
    COHORT_LLM_REGISTERS
    for (unsigned s = 0; s < 4; s += 2) {
      const std::uint32_t tile[4] = {w.v[w_at].v[s], w.v[w_at + 1].v[s], w.v[w_at].v[s + 1],
                                     w.v[w_at + 1].v[s + 1]};
      multiply_tensor(sum.v + at, tile, x.v[x_at].v + s, T{});
    }
#else
    __trap();  // `cuda_device` does not ask for it.
#endif
  }
  /// Replaces value i of each thread by its sum over `width` neighbouring lanes; a power of two up
  /// to 32. All lanes get the same bits.
  template <class R>
  COHORT_LLM_DEVICE void sum_over(R& r, unsigned i, unsigned width) {
    for (unsigned d = width / 2; d > 0; d /= 2) {
      r.v[i] += __shfl_xor_sync(0xFFFFFFFFU, r.v[i], static_cast<int>(d));
    }
  }
  template <class R>
  COHORT_LLM_DEVICE void max_over(R& r, unsigned i, unsigned width) {
    for (unsigned d = width / 2; d > 0; d /= 2) {
      r.v[i] = fmaxf(r.v[i], __shfl_xor_sync(0xFFFFFFFFU, r.v[i], static_cast<int>(d)));
    }
  }
};

}  // namespace cohort::llama::device

#endif

namespace cohort::llama::device {

/// The sum, or else the maximum, of value i over the block, in value i of all its threads, which
/// are a multiple of 32 and at most 1024. `scratch` holds a float for each 32 threads. The order of
/// the additions is that of the threads' numbers alone.
template <bool Sum, class Block, class R, class Shared>
COHORT_LLM_DEVICE void block_reduce(Block& b, R& r, unsigned i, Shared scratch) {
  const auto over_warp = [&] {
    if constexpr (Sum) {
      b.sum_over(r, i, 32);
    } else {
      b.max_over(r, i, 32);
    }
  };
  over_warp();
  b.each([&](unsigned t) {
    if (t % 32 == 0) scratch.set(t / 32, r.at(t, i));
  });
  b.barrier();
  b.each([&](unsigned t) {
    const unsigned lane = t % 32;
    r.at(t, i) = lane < b.threads() / 32 ? scratch.get(lane) : (Sum ? 0.0F : -INFINITY);
  });
  over_warp();
  b.barrier();
}

}  // namespace cohort::llama::device
