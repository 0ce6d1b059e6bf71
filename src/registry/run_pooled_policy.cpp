// SPDX-License-Identifier: Apache-2.0
// As run_policy.cpp, over the pools of a workload.
#include <cohort/sim/goodput.hpp>

#include "policies.hpp"
#include "policy.hpp"

namespace cohort::registry {

sim::run_result run_pooled_policy(const policy& p, const sim::workload& w,
                                  const sim::run_options& options,
                                  const progress_function& progress) {
  return with_composition(p, [&](const auto& c) {
    const auto make = [&](const deferred::network_delays& d) { return c.pooled_scheduler(d); };
    return sim::simulate(w, make, options, progress);
  });
}

}  // namespace cohort::registry
