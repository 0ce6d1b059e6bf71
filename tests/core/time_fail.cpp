// expect: no match for|no viable|invalid operands
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/time.hpp>

// Instants of a machine's clock and of the scheduler's timeline have nothing to do with each other.
auto lateness(std::chrono::steady_clock::time_point wall, cohort::time_point deadline) {
#ifdef COHORT_WELL_FORMED
  static_cast<void>(wall);
  return deadline - deadline;
#else
  return wall - deadline;
#endif
}
