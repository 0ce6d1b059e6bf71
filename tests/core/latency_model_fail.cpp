// expect: latency_model
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/latency_model.hpp>

struct milliseconds_as_double {
#ifdef COHORT_WELL_FORMED
  cohort::duration operator()(std::uint32_t) const noexcept { return cohort::duration{1}; }
#else
  double operator()(std::uint32_t) const noexcept { return 1.0; }
#endif
};

const cohort::latency_curve curve{milliseconds_as_double{}, 8};
