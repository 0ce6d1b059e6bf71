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
