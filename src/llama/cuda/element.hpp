// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elements of matrices on the GPU, f32, f16 and bf16, and their conversions; on the host the same
/// values by bits. Parsed by nvcc too: C++17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define COHORT_LLM_DEVICE __device__ __forceinline__
/// Before loops whose index picks registers.
#define COHORT_LLM_REGISTERS _Pragma("unroll")
#else
#define COHORT_LLM_DEVICE inline
#define COHORT_LLM_REGISTERS
#endif

namespace cohort::llama::device {

struct f16 {
  std::uint16_t bits;
};
struct bf16 {
  std::uint16_t bits;
};

/// Elements that a thread reads at once: 16 bytes.
template <class T>
struct alignas(16) pack {
  static constexpr unsigned size = 16 / sizeof(T);
  T v[size];
};

/// A pack as the bits that tensor cores take.
struct alignas(16) words {
  std::uint32_t v[4];
};

/// Four elements, the unit of programs that work on whole rows.
template <class T>
struct alignas(4 * sizeof(T)) quad {
  T v[4];
};

#if !defined(__CUDACC__)
namespace host {
inline float from_bits(std::uint32_t u) noexcept {
  float x = 0;
  std::memcpy(&x, &u, sizeof x);
  return x;
}
inline std::uint32_t to_bits(float x) noexcept {
  std::uint32_t u = 0;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
/// u without its lowest `bits` bits, rounded to nearest, ties to even.
inline std::uint32_t rounded(std::uint32_t u, unsigned bits) noexcept {
  const std::uint32_t odd = (u >> bits) & 1U;
  return (u + (1U << (bits - 1)) - 1U + odd) >> bits;
}
inline float widen(f16 x) noexcept {
  const std::uint32_t sign = (x.bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (x.bits >> 10U) & 0x1FU;
  const std::uint32_t fraction = x.bits & 0x3FFU;
  if (exponent == 0x1F) return from_bits(sign | 0x7F800000U | fraction << 13U);
  if (exponent > 0) return from_bits(sign | (exponent + 112) << 23U | fraction << 13U);
  const float tiny = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -tiny : tiny;
}
inline f16 narrow_f16(float x) noexcept {
  const std::uint32_t u = to_bits(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16U) & 0x8000U);
  const std::uint32_t size = u & 0x7FFFFFFFU;
  if (size > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (size >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};  // ≥ 65520
  if (size >= 0x38800000U) {
    return {static_cast<std::uint16_t>(sign | rounded(size - 0x38000000U, 13))};
  }
  // Below 2^−14: adding 0.5 leaves the multiple of 2^−24 in the last bits, rounded.
  const float shifted = from_bits(size) + 0.5F;
  return {static_cast<std::uint16_t>(sign | (to_bits(shifted) - to_bits(0.5F)))};
}
inline bf16 narrow_bf16(float x) noexcept {
  const std::uint32_t u = to_bits(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<std::uint16_t>((u >> 16U) | 0x40U)};
  return {static_cast<std::uint16_t>(rounded(u, 16))};
}
}  // namespace host
#endif

COHORT_LLM_DEVICE float widen(float x) { return x; }
COHORT_LLM_DEVICE float widen(f16 x) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(x.bits));
#else
  return host::widen(x);
#endif
}
COHORT_LLM_DEVICE float widen(bf16 x) {
#if defined(__CUDACC__)
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16U);
#else
  return host::from_bits(std::uint32_t{x.bits} << 16U);
#endif
}

COHORT_LLM_DEVICE void narrow(float x, float& to) { to = x; }
/// Rounds to nearest, ties to even.
COHORT_LLM_DEVICE void narrow(float x, f16& to) {
#if defined(__CUDACC__)
  to.bits = __half_as_ushort(__float2half_rn(x));
#else
  to = host::narrow_f16(x);
#endif
}
COHORT_LLM_DEVICE void narrow(float x, bf16& to) {
#if defined(__CUDACC__)
  to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
#else
  to = host::narrow_bf16(x);
#endif
}

/// Elements 4q to 4q + 3 of a row of `width`, widened, with zeros beyond its end. They are read at
/// once if the width is a multiple of four; then the row must be aligned to four elements.
template <class T>
COHORT_LLM_DEVICE quad<float> read_quad(const T* row, unsigned q, unsigned width) {
  quad<float> to{};
  if (4 * q >= width) return to;
  if (width % 4 == 0) {
    const quad<T> from = *reinterpret_cast<const quad<T>*>(row + 4 * q);
    COHORT_LLM_REGISTERS
    for (unsigned i = 0; i < 4; ++i) to.v[i] = widen(from.v[i]);
  } else {
    COHORT_LLM_REGISTERS
    for (unsigned i = 0; i < 4; ++i) {
      if (4 * q + i < width) to.v[i] = widen(row[4 * q + i]);
    }
  }
  return to;
}
/// The opposite: writes nothing beyond the row's end.
template <class T>
COHORT_LLM_DEVICE void write_quad(T* row, unsigned q, unsigned width, const quad<float>& from) {
  if (4 * q >= width) return;
  if (width % 4 == 0) {
    quad<T> to;
    COHORT_LLM_REGISTERS
    for (unsigned i = 0; i < 4; ++i) narrow(from.v[i], to.v[i]);
    *reinterpret_cast<quad<T>*>(row + 4 * q) = to;
  } else {
    COHORT_LLM_REGISTERS
    for (unsigned i = 0; i < 4; ++i) {
      if (4 * q + i < width) narrow(from.v[i], row[4 * q + i]);
    }
  }
}

}  // namespace cohort::llama::device
