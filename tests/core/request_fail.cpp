// expect: deleted
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/request.hpp>

cohort::request original;
#ifdef COHORT_WELL_FORMED
cohort::request& alias = original;
#else
cohort::request copy = original;
#endif
