// expect: [^a-z_]grant\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/rank.hpp>

namespace cohort::deferred {

struct sink {
#ifdef COHORT_WELL_FORMED
  void grant(const deferred::grant&) noexcept {}
#else
  void grant(const deferred::grant&, time_point) noexcept {}
#endif
  void waits(model_id) noexcept {}
};
void advance(rank& r, sink& out) { r.advance({}, out); }

}  // namespace cohort::deferred
