// expect: [^a-z_]urgency\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

namespace cohort::deferred {

struct throwing {
#ifdef COHORT_WELL_FORMED
  time_point urgency(const batch_view&) const noexcept { return {}; }
#else
  time_point urgency(const batch_view&) const { return {}; }
#endif
};

template <priority_policy Policy>
struct component {};

component<throwing> c;

}  // namespace cohort::deferred
