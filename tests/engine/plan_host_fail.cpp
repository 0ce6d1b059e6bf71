// expect: [^a-z_]is_out\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_applier.hpp>
#include <cohort/engine/plan_router.hpp>

namespace cohort::engine {

struct never_tells {
  device_id create(device_id, device_share) { return {}; }
  void destroy(device_id) {}
  model_id load(device_id, model_id) { return {}; }
  void unload(device_id, model_id) {}
  void warm_up(device_id, model_id) {}
  bool is_warm(model_id) { return true; }
  void drain(model_id) {}
  bool is_drained(model_id) { return true; }
#ifdef COHORT_WELL_FORMED
  bool is_out(device_id) { return false; }
#endif
};

using applier = plan_applier<never_tells, plan_router>;
applier* a = nullptr;

}  // namespace cohort::engine
