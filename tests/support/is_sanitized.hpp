// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether this program, and what it starts, runs under AddressSanitizer or ThreadSanitizer.
#pragma once

namespace cohort::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
inline constexpr bool is_sanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool is_sanitized = false;
#endif

}  // namespace cohort::test
