// expect: [^a-z_]end_period\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_follower.hpp>
#include <cohort/engine/plan_router.hpp>

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
struct never_plans {
  duration period() const { return {}; }
  packing::plan plan_on(std::uint32_t) { return {}; }
#ifdef COHORT_WELL_FORMED
  std::optional<packing::plan> end_period(std::span<const std::uint64_t>, std::uint64_t,
                                          std::uint64_t, duration) {
    return {};
  }
#endif
};

using follower = plan_follower<host, plan_router, never_plans>;
follower* f = nullptr;

}  // namespace cohort::engine
