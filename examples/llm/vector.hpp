// SPDX-License-Identifier: Apache-2.0
/// @file
/// Eight floats at a time, in sources that are compiled for more than one instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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
#define COHORT_LLM_INLINE inline __attribute__((always_inline))

namespace cohort::llm {
inline constexpr std::size_t lanes = 8;
using vector = float __attribute__((vector_size(lanes * sizeof(float))));
using integers = std::int32_t __attribute__((vector_size(lanes * sizeof(float))));

COHORT_LLM_INLINE void load(vector& v, const float* p) { std::memcpy(&v, p, sizeof v); }
COHORT_LLM_INLINE void store(float* p, const vector& v) { std::memcpy(p, &v, sizeof v); }
/// Always in the same tree.
COHORT_LLM_INLINE float sum_of(const vector& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

}  // namespace cohort::llm
