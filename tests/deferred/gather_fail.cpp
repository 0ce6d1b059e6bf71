// expect: [^a-z_]gather\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/policies.hpp>

namespace cohort::deferred {

struct throwing {
#ifdef COHORT_WELL_FORMED
  gathered gather(const request_queue&, const reach&, std::uint32_t) const noexcept { return {}; }
#else
  gathered gather(const request_queue&, const reach&, std::uint32_t) const { return {}; }
#endif
};

template <gather_policy Policy>
struct component {};

component<throwing> c;

}  // namespace cohort::deferred
