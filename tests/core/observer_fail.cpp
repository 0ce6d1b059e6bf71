// expect: [^a-z_]ended\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/observer.hpp>

struct forgetful : cohort::null_observer {
#ifndef COHORT_WELL_FORMED
  void ended(const cohort::request&) noexcept {}  // Hides the right one.
#endif
};

template <cohort::observer Observer>
struct scheduler {};

scheduler<forgetful> s;
