// expect: [^a-z_]waiting\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_router.hpp>

struct own {
  std::optional<cohort::refusal> submit(cohort::request&) { return {}; }
#ifdef COHORT_WELL_FORMED
  std::uint32_t waiting(cohort::model_id) const { return 0; }
#endif
};
auto submit(const cohort::engine::plan_router& router, own& engine, cohort::request& r) {
  return router.submit(engine, r, r.model);
}
