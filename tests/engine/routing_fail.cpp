// expect: [^a-z_]set\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_applier.hpp>

#include <vector>

namespace cohort::engine {

struct host {
  device_id create(device_id, device_share) { return {}; }
  void destroy(device_id) {}
  model_id load(device_id, model_id) { return {}; }
  void unload(device_id, model_id) {}
  void warm_up(device_id, model_id) {}
  bool is_warm(model_id) { return true; }
  void drain(model_id) {}
  bool is_drained(model_id) { return true; }
  bool is_out(device_id) { return false; }
};

struct routes_one {
#ifdef COHORT_WELL_FORMED
  void set(model_id, std::span<const route>) {}
#else
  void set(model_id, model_id) {}
#endif
};

using applier = plan_applier<host, routes_one>;
applier* a = nullptr;

}  // namespace cohort::engine
