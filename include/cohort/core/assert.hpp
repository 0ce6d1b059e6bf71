// SPDX-License-Identifier: Apache-2.0
/// @file
/// `COHORT_ASSERT`, `COHORT_ASSERT_USE`: checks of the library's own invariants and of how it is
/// used, active unless NDEBUG is defined.
#pragma once

#include <cohort/core/version.hpp>

#include <cassert>

/// States an invariant that only a bug in cohort can break. Bad arguments throw `config_error`
/// instead.
#define COHORT_ASSERT(condition) assert(condition)

/// States how a caller must use the library, where a check would cost too much in a release build:
/// the process ends with the sentence, which says what the caller did wrong.
#define COHORT_ASSERT_USE(condition, sentence) assert((condition) && (sentence))
