// expect: [^a-z_]drop\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/scheduler.hpp>

struct sink {
  void dispatch(cohort::deferred::batch&&) noexcept {}
#ifdef COHORT_WELL_FORMED
  void drop(cohort::request&) noexcept {}
#else
  void drop(cohort::request&) {}
#endif
};
void advance(cohort::deferred::scheduler& s, sink& out) { s.advance({}, out); }
