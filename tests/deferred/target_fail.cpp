// expect: [^a-z_]target\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

namespace cohort::deferred {

struct throwing {
#ifdef COHORT_WELL_FORMED
  std::uint32_t target(const load_view&, duration, const latency_curve&) const noexcept {
    return 1;
  }
#else
  std::uint32_t target(const load_view&, duration, const latency_curve&) const { return 1; }
#endif
};

template <target_policy Policy>
struct component {};

component<throwing> c;

}  // namespace cohort::deferred
