// expect: [^a-z_]run_inside\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/partition_host.hpp>
#include <cohort/engine/profile_backend.hpp>

namespace cohort::engine {

struct own {
  device_id add_device(void (*)(device_id), deferred::pool_id, std::uint32_t) { return {}; }
  model_id add_model(model_config, void (*)(model_id), deferred::pool_id) { return {}; }
  void remove_model(model_id, void (*)()) {}
  void remove_device(device_id) {}
  bool has_device(model_id) const { return true; }
#ifdef COHORT_WELL_FORMED
  void run_inside(void (*)()) {}
#endif
};
using loader = partition_model<latency_curve> (*)(model_id, device_id, device_share);
void make(own& e, profile_backend& b, loader load) { partition_host host{e, b, load}; }

}  // namespace cohort::engine
