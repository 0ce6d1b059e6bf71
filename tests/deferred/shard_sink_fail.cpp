// expect: [^a-z_]grant_returned\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/deferred/model_shard.hpp>

namespace cohort::deferred {

struct sink {
  void dispatch(batch&&) noexcept {}
  void drop(request&) noexcept {}
  [[nodiscard]] pool_view pool(model_id) const noexcept { return {}; }
  void candidate_changed(model_id, const candidate&) noexcept {}
  void grant_used(model_id, device_id, time_point, duration) noexcept {}
#ifdef COHORT_WELL_FORMED
  void grant_returned(model_id, device_id) noexcept {}
#endif
};
void advance(basic_model_shard<>& s, sink& out) { s.advance({}, out); }

}  // namespace cohort::deferred
