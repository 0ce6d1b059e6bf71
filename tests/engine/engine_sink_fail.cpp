// expect: [^a-z_]model_removed\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/engine_core.hpp>

struct sink {
  void launch(const cohort::deferred::batch&) noexcept {}
  void ended(cohort::request&, cohort::outcome) noexcept {}
#ifdef COHORT_WELL_FORMED
  void model_removed(cohort::model_id) noexcept {}
#endif
};
void advance(cohort::engine::engine_core& c, sink& out) { c.advance({}, out); }
