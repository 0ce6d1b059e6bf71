// SPDX-License-Identifier: Apache-2.0
/// @file
/// `COHORT_ASSERT`: checks of the library's own invariants, active unless NDEBUG is defined.
#pragma once

#include <cohort/core/version.hpp>

#include <cassert>

/// States an invariant that only a bug in cohort can break. Bad arguments throw `config_error`
/// instead.
#define COHORT_ASSERT(condition) assert(condition)
