// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of the headers, as macros for the preprocessor and as a string.
#pragma once

#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0
/// One number that orders versions: major * 10000 + minor * 100 + patch.
#define COHORT_VERSION \
  (COHORT_VERSION_MAJOR * 10000 + COHORT_VERSION_MINOR * 100 + COHORT_VERSION_PATCH)

namespace cohort {
inline constexpr const char* version_string = "0.1.0";
}  // namespace cohort
