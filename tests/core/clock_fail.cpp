// expect: [^a-z_]now\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/core/clock.hpp>

struct server_clock {
#ifdef COHORT_WELL_FORMED
  cohort::time_point now() const noexcept { return {}; }
#else
  cohort::time_point now() const { return {}; }
#endif
};

template <cohort::clock Clock>
struct driver {};

driver<server_clock> d;
