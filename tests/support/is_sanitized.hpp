// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether this program, and what it starts, runs under AddressSanitizer or ThreadSanitizer, and
/// how much of a long exploration is worth its time there.
#pragma once

#include <cstdint>

namespace cohort::test {

#if defined(__has_feature)
#define COHORT_TEST_HAS(sanitizer) __has_feature(sanitizer)
#else
#define COHORT_TEST_HAS(sanitizer) 0
#endif

#if defined(__SANITIZE_THREAD__) || COHORT_TEST_HAS(thread_sanitizer)
inline constexpr bool is_thread_sanitized = true;
#else
inline constexpr bool is_thread_sanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || COHORT_TEST_HAS(address_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = is_thread_sanitized;
#endif
#undef COHORT_TEST_HAS

/// How many of `all` seeds to try: all without sanitizers, a quarter of them with one. Assertions
/// need every seed, and sanitizers, which are many times as slow, look at code that each seed runs
/// through.
constexpr std::uint64_t seeds(std::uint64_t all) noexcept {
  return is_sanitized ? (all + 3) / 4 : all;
}
/// How often something must happen with so many seeds that happens `all` times with all of them:
/// half of what the number of seeds lets expect, as chance may have it.
constexpr std::uint64_t at_least(std::uint64_t all) noexcept {
  return is_sanitized ? (all + 7) / 8 : all;
}

}  // namespace cohort::test
