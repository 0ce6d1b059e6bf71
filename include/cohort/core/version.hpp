// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of the headers, as macros for the preprocessor and as a string.
#pragma once

// Every header includes this one, directly or through others, so that an older standard gives this
// one message. Compilers go on after #error, but not after a file that does not exist.
#if (defined(_MSVC_LANG) ? _MSVC_LANG : __cplusplus) < 202002L
#error "cohort needs C++20: compile with -std=c++20 or later"
#define COHORT_STOP <cohort needs C++20>
#include COHORT_STOP
#endif

#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0
/// One number that orders versions: major * 10000 + minor * 100 + patch.
#define COHORT_VERSION \
  (COHORT_VERSION_MAJOR * 10000 + COHORT_VERSION_MINOR * 100 + COHORT_VERSION_PATCH)

namespace cohort {
inline constexpr const char* version_string = "0.1.0";
}  // namespace cohort
