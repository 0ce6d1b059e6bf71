// expect: [^a-z_]complete\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/profile_backend.hpp>

struct own {
#ifdef COHORT_WELL_FORMED
  void complete(cohort::device_entry, bool) {}
#else
  void complete(cohort::device_entry) {}
#endif
  void complete_request(cohort::device_entry, const cohort::request&, bool) {}
  void complete_probe(cohort::device_id, bool) {}
  template <class F>
  void nudge(F publish) {
    publish();
  }
};
void bind(cohort::engine::profile_backend& b, own& engine) { b.bind(engine); }
