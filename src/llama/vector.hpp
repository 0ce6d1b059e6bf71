// SPDX-License-Identifier: Apache-2.0
/// @file
/// Eight floats at a time, in sources that are compiled for more than one instruction set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numbers>

// One binary for all machines of an architecture: the loops are compiled twice, and the loader
// chooses. Nothing here relies on which.
#if defined(__x86_64__) && defined(__has_attribute)
#if __has_attribute(target_clones) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define COHORT_LLM_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
#endif
#ifndef COHORT_LLM_CLONES
#define COHORT_LLM_CLONES
#endif
// Small loops over registers: an array of vectors that stays a loop would live in memory.
#if defined(__clang__)
#define COHORT_LLM_UNROLL _Pragma("unroll")
#else
#define COHORT_LLM_UNROLL _Pragma("GCC unroll 8")
#endif
#define COHORT_LLM_INLINE inline __attribute__((always_inline))

namespace cohort::llama {
inline constexpr std::size_t lanes = 8;
using vector = float __attribute__((vector_size(lanes * sizeof(float))));
using integers = std::int32_t __attribute__((vector_size(lanes * sizeof(float))));

COHORT_LLM_INLINE void load(vector& v, const float* p) { std::memcpy(&v, p, sizeof v); }
COHORT_LLM_INLINE void store(float* p, const vector& v) { std::memcpy(p, &v, sizeof v); }
/// The first `count` of eight, zeros behind them.
COHORT_LLM_INLINE void load_some(vector& v, const float* p, std::size_t count) {
  v = vector{};
  std::memcpy(&v, p, count * sizeof(float));
}
COHORT_LLM_INLINE void store_some(float* p, const vector& v, std::size_t count) {
  std::memcpy(p, &v, count * sizeof(float));
}
/// Always in the same tree.
COHORT_LLM_INLINE float sum_of(const vector& v) {
  using half = float __attribute__((vector_size(lanes / 2 * sizeof(float))));
  const half low = __builtin_shufflevector(v, v, 0, 1, 2, 3);
  const half high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  const half t = low + high;
  const half u = t + __builtin_shufflevector(t, t, 2, 3, 2, 3);
  return u[0] + u[1];
}

/// e^x for x ≤ 0, to a relative 2e-7, and 0 below −87. Five-term polynomial on [−ln 2 / 2, ln 2 /
/// 2].
COHORT_LLM_INLINE vector exponential(vector x) {
  const integers in_range = x > -87.0F;
  const vector t = x * std::numbers::log2e_v<float>;
  // Round to the nearest integer by adding 1.5 · 2^23.
  const vector shifted = t + 12582912.0F;
  const vector n = shifted - 12582912.0F;
  // ln 2 in two parts, so that the first product is exact.
  // NOLINTNEXTLINE(modernize-use-std-numbers)
  const vector r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  vector p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const integers power = (std::bit_cast<integers>(shifted) + 127) << 23;
  const integers bits = std::bit_cast<integers>(p * std::bit_cast<vector>(power)) & in_range;
  return std::bit_cast<vector>(bits);
}

}  // namespace cohort::llama
