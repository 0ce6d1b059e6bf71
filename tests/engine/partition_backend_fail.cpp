// expect: [^a-z_]warm_up\(
// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/partition_host.hpp>
#include <cohort/engine/profile_backend.hpp>

namespace cohort::engine {

struct own : profile_backend {
#ifndef COHORT_WELL_FORMED
  void warm_up() = delete;
#endif
};
using engine_type =
    manual_engine<basic_engine_core<deferred::pooled_scheduler>, own, queued_completion>;
using loader = partition_model<latency_curve> (*)(model_id, device_id, device_share);
void make(engine_type& e, own& b, loader load) { partition_host host{e, b, load}; }

}  // namespace cohort::engine
