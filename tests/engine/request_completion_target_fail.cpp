// expect: can_be_nudged
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/end_report.hpp>

struct own {
  void complete(cohort::device_id, bool) {}
  void complete_request(cohort::device_id, const cohort::request&, bool) {}
#ifdef COHORT_WELL_FORMED
  template <class F>
  void nudge(F publish) {
    publish();
  }
#endif
};
void bind(cohort::engine::request_report& report, own& engine) { report.bind(engine); }
