// expect: hears_of_batch_ends
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/profile_backend.hpp>

struct own {
#ifdef COHORT_WELL_FORMED
  void complete(cohort::device_id, bool) {}
#else
  void complete(cohort::device_id) {}
#endif
};
void bind(cohort::engine::profile_backend& b, own& engine) { b.bind(engine); }
